// Matrix products: oneDNN (f32) or Eigen on the CPU, cuBLAS on the GPU. All row-major.
#pragma once

#include "tensor/tensor.hpp"

namespace skytape {

/// Whether an operand enters a product as it is or transposed (last two axes swapped).
enum class Op : bool { none, transpose };

namespace tensor {

/// op(a) op(b). a: [..., m, k], b: [..., k, n] (before the transpose flags); leading axes equal, or
/// one operand is a plain matrix that every batch entry uses. Returns [..., m, n].
[[nodiscard]] Tensor matmul(const Tensor& a, const Tensor& b, Op op_a = Op::none,
                            Op op_b = Op::none);

/// c = alpha op(a) op(b) + beta c, shapes as matmul; c must already have the result's shape.
void gemm(const Tensor& a, Op op_a, const Tensor& b, Op op_b, Tensor& c, double alpha = 1,
          double beta = 0);

/// CPU building block for tiled kernels: C = alpha op(A) op(B) + beta C on row-major arrays with
/// leading dimensions. Runs serially inside a parallel region. T is float or double.
template <class T> void gemm_cpu(Op op_a, Op op_b, std::int64_t m, std::int64_t n, std::int64_t k,
                                 T alpha, const T* a, std::int64_t lda, const T* b,
                                 std::int64_t ldb, T beta, T* c, std::int64_t ldc);

}  // namespace tensor
}  // namespace skytape
