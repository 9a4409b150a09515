// cuBLAS of the simulated device: its checks of arguments, and plain loops. tf32 and bf16 round the
// operands and sum in f32.
#include "tests/cuda_simulator/cublas_v2.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "tensor/core/on_device.hpp"
#include "tests/cuda_simulator/device.hpp"
#include "tests/cuda_simulator/simulator.hpp"

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

/// Numbers in memory as the sums have them; 16 bits: bf16.
template <class T, class In> T number(In x) {
  if constexpr (std::is_same_v<In, std::uint16_t>) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(x) << 16);
  } else {
    return x;
  }
}

/// Sums as numbers in memory.
template <class Out, class T> Out stored(T x) {
  if constexpr (std::is_same_v<Out, std::uint16_t>) {
    return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(rounded(x, 16)) >> 16);
  } else {
    return x;
  }
}

template <class T, class In = T, class Out = T> struct Product {
  cublasOperation_t op_a, op_b;
  int m, n, k;
  T alpha;
  const In* a;
  int lda;
  long long stride_a;
  const In* b;
  int ldb;
  long long stride_b;
  T beta;
  Out* c;
  int ldc;
  long long stride_c;
  int batch;

  [[nodiscard]] bool valid() const {
    return m >= 0 && n >= 0 && k >= 0 && batch >= 0 &&
           lda >= std::max(1, op_a == CUBLAS_OP_N ? m : k) &&
           ldb >= std::max(1, op_b == CUBLAS_OP_N ? k : n) && ldc >= std::max(1, m);
  }

  /// op(x) [rows, columns] by columns, rounded.
  [[nodiscard]] std::vector<T> operand(const In* x, int ld, cublasOperation_t op, int rows,
                                       int columns, Rounding rounding) const {
    std::vector<T> dense(static_cast<std::size_t>(rows) * columns);
    const std::ptrdiff_t row_step = op == CUBLAS_OP_N ? 1 : ld;
    const std::ptrdiff_t column_step = op == CUBLAS_OP_N ? ld : 1;
    for (std::ptrdiff_t j = 0; j < columns; ++j) {
      for (std::ptrdiff_t i = 0; i < rows; ++i) {
        T value = number<T>(x[i * row_step + j * column_step]);
        if constexpr (std::is_same_v<T, float>) {
          if (rounding == Rounding::tf32) value = rounded(value, 13);
          if (rounding == Rounding::bf16) value = rounded(value, 16);
        }
        dense[static_cast<std::size_t>(j * rows + i)] = value;
      }
    }
    return dense;
  }

  void run(Rounding rounding) const {
    const OpenMemory open;
#pragma omp parallel for schedule(static) if (batch > 1)
    for (int e = 0; e < batch; ++e) {
      const std::vector<T> left = operand(a + e * stride_a, lda, op_a, m, k, rounding);
      const std::vector<T> right = operand(b + e * stride_b, ldb, op_b, k, n, rounding);
      std::vector<T> column(static_cast<std::size_t>(m));
      for (int j = 0; j < n; ++j) {
        std::fill(column.begin(), column.end(), T(0));
        for (int i = 0; i < k; ++i) {
          const T factor = right[static_cast<std::size_t>(j) * k + i];
          const T* const from = left.data() + static_cast<std::size_t>(i) * m;
#pragma omp simd
          for (int r = 0; r < m; ++r) column[static_cast<std::size_t>(r)] += from[r] * factor;
        }
        Out* const to = c + e * stride_c + static_cast<std::ptrdiff_t>(j) * ldc;
        for (int r = 0; r < m; ++r) {
          const T product = alpha * column[static_cast<std::size_t>(r)];
          // beta = 0 overwrites what c held, NaN too.
          to[r] = stored<Out>(beta == T(0) ? product : product + beta * number<T>(to[r]));
        }
      }
    }
  }

  cublasStatus_t submit(cublasHandle_t handle, Rounding rounding) const {
    if (!valid()) return CUBLAS_STATUS_INVALID_VALUE;
    if (m == 0 || n == 0 || batch == 0) return CUBLAS_STATUS_SUCCESS;
    if (only_counts_product()) return CUBLAS_STATUS_SUCCESS;
    const auto work = [p = *this, rounding] {
      const std::int64_t start_ns = global_nanoseconds();
      p.run(rounding);
      trace_product(p.k > p.m * p.n, start_ns);
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
                                          const void* alpha, const void* a, cudaDataType_t type_a,
                                          int lda, long long stride_a, const void* b,
                                          cudaDataType_t type_b, int ldb, long long stride_b,
                                          const void* beta, void* c, cudaDataType_t type_c, int ldc,
                                          long long stride_c, int batch,
                                          cublasComputeType_t compute, cublasGemmAlgo_t) {
  // A device may compute this off its tensor cores; here nobody shall count on them.
  if (handle->math == CUBLAS_PEDANTIC_MATH) return CUBLAS_STATUS_NOT_SUPPORTED;
  const bool in_bf16 = type_a == CUDA_R_16BF;
  const bool to_bf16 = type_c == CUDA_R_16BF;
  if (type_a != type_b || in_bf16 != (compute == CUBLAS_COMPUTE_32F) || (to_bf16 && !in_bf16)) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  const auto submit = [&]<class In, class Out>(In, Out) {
    return Product<float, In, Out>{op_a,
                                   op_b,
                                   m,
                                   n,
                                   k,
                                   *static_cast<const float*>(alpha),
                                   static_cast<const In*>(a),
                                   lda,
                                   stride_a,
                                   static_cast<const In*>(b),
                                   ldb,
                                   stride_b,
                                   *static_cast<const float*>(beta),
                                   static_cast<Out*>(c),
                                   ldc,
                                   stride_c,
                                   batch}
        .submit(handle, Rounding::bf16);
  };
  if (to_bf16) return submit(std::uint16_t{}, std::uint16_t{});
  return in_bf16 ? submit(std::uint16_t{}, 0.0f) : submit(0.0f, 0.0f);
}
