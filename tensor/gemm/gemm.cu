// CUDA half of gemm: cuBLAS, which is column-major. A row-major C = op(A) op(B) is, read column by
// column, Cᵀ = op(B)ᵀ op(A)ᵀ: the operands change places and keep their flags.
#include <utility>

#include "tensor/gemm/gemm_plan.hpp"
#include "tensor/gemm/operand.hpp"
#include "tensor/gemm/precision.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/kernels/reduce.hpp"
#include "tensor/launch/cuda.hpp"

namespace skytape::tensor {
namespace {

/// cuBLAS takes 32-bit sizes.
int size_32(const char* what, std::int64_t size) {
  ENSURE(size <= std::numeric_limits<int>::max(), "gemm: ", what, " = ", size,
         " is more than cuBLAS takes");
  return static_cast<int>(size);
}

/// The arguments of one strided batched call, in cuBLAS's order of operands.
struct Call {
  cublasOperation_t op_first, op_second;
  int m, n, k, lda, ldb, batch;  // lda, ldb: of the row-major A and B; C's rows are n apart

  explicit Call(const GemmPlan& p)
      : op_first(letter(p.op_b)),
        op_second(letter(p.op_a)),
        m(size_32("m", p.m)),
        n(size_32("n", p.n)),
        k(size_32("k", p.k)),
        lda(std::max(1, size_32("lda", p.lda()))),
        ldb(std::max(1, size_32("ldb", p.ldb()))),
        batch(size_32("batch", p.batch)) {}

  static cublasOperation_t letter(Op op) { return op == Op::transpose ? CUBLAS_OP_T : CUBLAS_OP_N; }
};

/// The handle with the mode of the device's precision. tf32 is a mode. bf16 is asked for by each
/// product's compute type, which the pedantic mode may keep from the tensor cores.
cublasHandle_t cublas_at_precision() {
  const cublasMath_t modes[] = {CUBLAS_PEDANTIC_MATH, CUBLAS_TF32_TENSOR_OP_MATH,
                                CUBLAS_DEFAULT_MATH};  // by Precision
  CUDA_CHECK(cublasSetMathMode(cuda::cublas(), modes[static_cast<int>(precision(Device::cuda))]));
  return cuda::cublas();
}

void multiply_f64(const GemmPlan& p, const Call& s, const double* a, const double* b, double* c) {
  CUDA_CHECK(cublasDgemmStridedBatched(cublas_at_precision(), s.op_first, s.op_second, s.n, s.m,
                                       s.k, &p.alpha, b, s.ldb, p.stride_b, a, s.lda, p.stride_a,
                                       &p.beta, c, s.n, p.m * p.n, s.batch));
}

/// Equal parts that the depth of a small product of many rows is cut into, so that the parts fill
/// the device: weight gradients are [out, rows] [rows, in] with a few thousand results and a depth
/// of 65,536. 1: not cut. Only op(A) = Aᵀ, op(B) = B has parts that lie together.
std::int64_t parts_of_depth(const GemmPlan& p) {
  constexpr std::int64_t kLeastDepth = 512, kMostParts = 128, kManyResults = 256 * 256;
  const bool by_rows = p.op_a == Op::transpose && p.op_b == Op::none && p.batch == 1;
  if (!by_rows || p.beta != 0 || p.m * p.n > kManyResults) return 1;
  std::int64_t parts = 1;
  while (2 * parts <= kMostParts && p.k % (2 * parts) == 0 && p.k / (2 * parts) >= kLeastDepth) {
    parts *= 2;
  }
  return parts;
}

/// fp32 or tf32 as the handle's mode says.
void multiply_f32(const GemmPlan& p, const Call& s, const float* a, const float* b, float* c) {
  const float alpha = static_cast<float>(p.alpha), beta = static_cast<float>(p.beta);
  CUDA_CHECK(cublasSgemmStridedBatched(cublas_at_precision(), s.op_first, s.op_second, s.n, s.m,
                                       s.k, &alpha, b, s.ldb, p.stride_b, a, s.lda, p.stride_a,
                                       &beta, c, s.n, p.m * p.n, s.batch));
}

cudaDataType_t type_in_memory(const Tensor& x) {
  return x.dtype() == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F;
}

/// Operands of bf16 or, which the compute type asks to multiply as bf16, of f32; there an H100's
/// library takes tf32.
void multiply_bf16(const GemmPlan& p, const Call& s, const Tensor& a, const Tensor& b, Tensor& c) {
  const float alpha = static_cast<float>(p.alpha), beta = static_cast<float>(p.beta);
  const cudaDataType_t type = type_in_memory(a);
  CUDA_CHECK(cublasGemmStridedBatchedEx(
      cublas_at_precision(), s.op_first, s.op_second, s.n, s.m, s.k, &alpha, b.raw(), type, s.ldb,
      p.stride_b, a.raw(), type, s.lda, p.stride_a, &beta, c.raw(), type_in_memory(c), s.n,
      p.m * p.n, s.batch, type == CUDA_R_16BF ? CUBLAS_COMPUTE_32F : CUBLAS_COMPUTE_32F_FAST_16BF,
      CUBLAS_GEMM_DEFAULT));
}

/// Returns whether a product of f32 operands is so large that it takes less time if a kernel rounds
/// each of them before. Measured on an H100: products of bf16 in memory have twice the rate of f32
/// ones (798 against 391 TFLOP/s), memory 2.9 TB/s. So m n k multiply-adds save 2.6 fs each, and
/// m k + k n numbers cost 6 bytes each, 2.1 ps: it pays from m n = 800 (m + n) on.
bool rounds_first(const GemmPlan& p) {
  constexpr std::int64_t kLeastWidth = 1024, kLeastDepth = 256;
  const bool aligned = p.m % 8 == 0 && p.n % 8 == 0 && p.k % 8 == 0;
  return aligned && p.batch == 1 && p.k >= kLeastDepth && p.m * p.n >= kLeastWidth * (p.m + p.n);
}

}  // namespace

void gemm_on(Cuda, const GemmPlan& plan, const Tensor& a, const Tensor& b, Tensor& c) {
  ENSURE(c.dtype() != DType::i32, "gemm: expected f32 or f64, got ", c);
  if (plan.k == 0) return plan.beta == 0 ? c.fill(0) : c.copy_from(affine(c, plan.beta));
  if (const std::int64_t parts = parts_of_depth(plan); parts > 1 && c.dtype() != DType::bf16) {
    GemmPlan part = plan;
    part.batch = parts;
    part.k = plan.k / parts;
    part.stride_a = part.k * plan.m;
    part.stride_b = part.k * plan.n;
    Tensor products = Tensor::empty({parts, plan.m, plan.n}, c.dtype(), Device::cuda);
    gemm_on(Cuda{}, part, a, b, products);
    c.copy_from(sum(products, 0).reshape(c.shape()));
    return;
  }
  const bool in_bf16 = a.dtype() == DType::bf16;
  const bool at_bf16 = a.dtype() == DType::f32 && precision(Device::cuda) == Precision::bf16;
  if (at_bf16 && rounds_first(plan)) {
    return gemm_on(Cuda{}, plan, as_operand(a, DType::bf16), as_operand(b, DType::bf16), c);
  }
  const Call sizes(plan);
  if (c.dtype() == DType::f64) {
    multiply_f64(plan, sizes, a.data<double>(), b.data<double>(), c.data<double>());
  } else if (in_bf16 || at_bf16) {
    multiply_bf16(plan, sizes, a, b, c);
  } else {
    multiply_f32(plan, sizes, a.data<float>(), b.data<float>(), c.data<float>());
  }
}

void gemm_sum_on(Cuda, const GemmPlan& plan, const Tensor& a, const Tensor& b, Tensor& c) {
  if (plan.k == 1) {  // outer products, of rows [batch, m] and [batch, n]: their sum is one product
    GemmPlan all = plan;
    all.op_a = Op::transpose, all.op_b = Op::none;
    all.k = std::exchange(all.batch, 1);
    return gemm_on(Cuda{}, all, a, b, c);
  }
  Tensor products = Tensor::empty({plan.batch, plan.m, plan.n}, c.dtype(), Device::cuda);
  gemm_on(Cuda{}, plan, a, b, products);  // one after the other would leave most of a GPU idle
  c = sum(products, 0);
}

}  // namespace skytape::tensor

namespace skytape {

bool has_bf16_on(Cuda) { return cuda::device_facts().compute_capability >= 8; }

}  // namespace skytape
