// cuBLAS of the simulated device: its checks of arguments, and Eigen's products. tf32 and bf16
// round the operands and sum in f32.
#include "tests/cuda_simulator/cublas_v2.h"

#include <Eigen/Core>
#include <bit>
#include <cstdint>

#include "tests/cuda_simulator/device.hpp"

struct cublasContext {
  cudaStream_t stream = nullptr;
  cublasMath_t math = CUBLAS_DEFAULT_MATH;
};

namespace {

using namespace skytape::cuda_simulator;

enum class Rounding { none, tf32, bf16 };

/// To the nearest number with fewer bits of mantissa, ties to even; not a finite one: unchanged.
float rounded(float x, int dropped_bits) {
  if (!std::isfinite(x)) return x;
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t half = (1u << (dropped_bits - 1)) - 1 + (bits >> dropped_bits & 1u);
  return std::bit_cast<float>((bits + half) & ~((1u << dropped_bits) - 1));
}

template <class T> using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic>;  // by columns
template <class T> using Strided =
    Eigen::Map<std::conditional_t<std::is_const_v<T>, const Matrix<std::remove_const_t<T>>,
                                  Matrix<std::remove_const_t<T>>>,
               0, Eigen::OuterStride<>>;

template <class T> struct Product {
  cublasOperation_t op_a, op_b;
  int m, n, k;
  T alpha;
  const T* a;
  int lda;
  long long stride_a;
  const T* b;
  int ldb;
  long long stride_b;
  T beta;
  T* c;
  int ldc;
  long long stride_c;
  int batch;

  [[nodiscard]] bool valid() const {
    return m >= 0 && n >= 0 && k >= 0 && batch >= 0 &&
           lda >= std::max(1, op_a == CUBLAS_OP_N ? m : k) &&
           ldb >= std::max(1, op_b == CUBLAS_OP_N ? k : n) && ldc >= std::max(1, m);
  }

  [[nodiscard]] Matrix<T> operand(const T* x, int ld, cublasOperation_t op, int rows, int columns,
                                  Rounding rounding) const {
    Matrix<T> stored =
        op == CUBLAS_OP_N
            ? Matrix<T>(Strided<const T>(x, rows, columns, Eigen::OuterStride<>(ld)))
            : Matrix<T>(Strided<const T>(x, columns, rows, Eigen::OuterStride<>(ld)).transpose());
    if constexpr (std::is_same_v<T, float>) {
      if (rounding != Rounding::none) {
        const int dropped = rounding == Rounding::tf32 ? 13 : 16;
        stored = stored.unaryExpr([dropped](float v) { return rounded(v, dropped); });
      }
    }
    return stored;
  }

  void run(Rounding rounding) const {
    const OpenMemory open;
    for (int i = 0; i < batch; ++i) {
      Strided<T> result(c + i * stride_c, m, n, Eigen::OuterStride<>(ldc));
      // beta = 0 overwrites what c held, NaN too.
      if (beta == T(0)) {
        result.setZero();
      } else {
        result *= beta;
      }
      if (k == 0) continue;
      result.noalias() += alpha * operand(a + i * stride_a, lda, op_a, m, k, rounding) *
                          operand(b + i * stride_b, ldb, op_b, k, n, rounding);
    }
  }

  cublasStatus_t submit(cublasHandle_t handle, Rounding rounding) const {
    if (!valid()) return CUBLAS_STATUS_INVALID_VALUE;
    if (m == 0 || n == 0 || batch == 0) return CUBLAS_STATUS_SUCCESS;
    const auto work = [p = *this, rounding] {
      p.run(rounding);
      return cudaSuccess;
    };
    return enqueue(handle->stream, work) == cudaSuccess ? CUBLAS_STATUS_SUCCESS
                                                        : CUBLAS_STATUS_EXECUTION_FAILED;
  }
};

}  // namespace

const char* cublasGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
  }
  return "unknown";
}
cublasStatus_t cublasCreate(cublasHandle_t* handle) {
  *handle = new cublasContext;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy(cublasHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
  handle->math = mode;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetWorkspace(cublasHandle_t, void* workspace, std::size_t bytes) {
  return on_device(workspace, bytes) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasDgemmStridedBatched(cublasHandle_t handle, cublasOperation_t op_a,
                                         cublasOperation_t op_b, int m, int n, int k,
                                         const double* alpha, const double* a, int lda,
                                         long long stride_a, const double* b, int ldb,
                                         long long stride_b, const double* beta, double* c, int ldc,
                                         long long stride_c, int batch) {
  return Product<double>{op_a, op_b, m,        n,     k, *alpha, a,        lda,  stride_a,
                         b,    ldb,  stride_b, *beta, c, ldc,    stride_c, batch}
      .submit(handle, Rounding::none);
}
cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t handle, cublasOperation_t op_a,
                                         cublasOperation_t op_b, int m, int n, int k,
                                         const float* alpha, const float* a, int lda,
                                         long long stride_a, const float* b, int ldb,
                                         long long stride_b, const float* beta, float* c, int ldc,
                                         long long stride_c, int batch) {
  return Product<float>{op_a, op_b, m,        n,     k, *alpha, a,        lda,  stride_a,
                        b,    ldb,  stride_b, *beta, c, ldc,    stride_c, batch}
      .submit(handle, handle->math == CUBLAS_TF32_TENSOR_OP_MATH ? Rounding::tf32 : Rounding::none);
}
cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t op_a,
                                          cublasOperation_t op_b, int m, int n, int k,
                                          const void* alpha, const void* a, cudaDataType_t, int lda,
                                          long long stride_a, const void* b, cudaDataType_t,
                                          int ldb, long long stride_b, const void* beta, void* c,
                                          cudaDataType_t, int ldc, long long stride_c, int batch,
                                          cublasComputeType_t, cublasGemmAlgo_t) {
  return Product<float>{op_a,
                        op_b,
                        m,
                        n,
                        k,
                        *static_cast<const float*>(alpha),
                        static_cast<const float*>(a),
                        lda,
                        stride_a,
                        static_cast<const float*>(b),
                        ldb,
                        stride_b,
                        *static_cast<const float*>(beta),
                        static_cast<float*>(c),
                        ldc,
                        stride_c,
                        batch}
      .submit(handle, Rounding::bf16);
}
