// Matrix products: oneDNN (f32) or Eigen on the CPU, cuBLAS on the GPU. All row-major.
#pragma once

#include "tensor/core/tensor.hpp"

namespace skytape {

/// States whether an operand enters a product as it is or transposed (last two axes swapped).
enum class Op : bool { none, transpose };

namespace tensor {

/// op(a) op(b). a: [..., m, k], b: [..., k, n] (before the transpose flags); leading axes equal, or
/// one operand is a plain matrix that every batch entry uses. Returns [..., m, n].
[[nodiscard]] Tensor matmul(const Tensor& a, const Tensor& b, Op op_a = Op::none,
                            Op op_b = Op::none);

/// op(a) op(b) added up over the leading axes, which are equal: [m, n].
[[nodiscard]] Tensor matmul_sum(const Tensor& a, const Tensor& b, Op op_a = Op::none,
                                Op op_b = Op::none);

/// c = alpha op(a) op(b) + beta c, shapes as matmul; c must already have the result's shape.
void gemm(const Tensor& a, Op op_a, const Tensor& b, Op op_b, Tensor& c, double alpha = 1,
          double beta = 0);

/// CPU building block for tiled kernels: C = alpha op(A) op(B) + beta C on row-major arrays with
/// leading dimensions. Always runs in the calling thread alone. T is float or double.
template <class T> void gemm_cpu(Op op_a, Op op_b, std::int64_t m, std::int64_t n, std::int64_t k,
                                 T alpha, const T* a, std::int64_t lda, const T* b,
                                 std::int64_t ldb, T beta, T* c, std::int64_t ldc);

/// Measures the machine's peak throughput, for roofline figures. The first returns the rate of an
/// f32 product of square matrices (1024 on the CPU, 4096 on a GPU) at the device's precision, in
/// 10^9 floating-point operations a second. The second returns that of a copy larger than the
/// caches, in 10^9 bytes a second, read plus written. Both are the best of several runs with all
/// OpenMP threads.
[[nodiscard]] double measure_gemm_gflops(Device device);
[[nodiscard]] double measure_copy_gbs(Device device);

}  // namespace tensor
}  // namespace skytape
