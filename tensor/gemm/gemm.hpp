// Matrix products: oneDNN (f32) or Eigen on the CPU, cuBLAS on the GPU. All row-major.
#pragma once

#include "tensor/core/tensor.hpp"

namespace skytape {

/// States whether an operand enters a product as it is or transposed (last two axes swapped).
enum class Op : bool { none, transpose };

namespace tensor {

/// Returns op(a) op(b), [..., m, n], where op(a) is [..., m, k] and op(b) [..., k, n]. Leading axes
/// are equal, or one operand is a plain matrix that every batch entry uses. Two operands of bf16,
/// which only CUDA multiplies, have an f32 product.
[[nodiscard]] Tensor matmul(const Tensor& a, const Tensor& b, Op op_a = Op::none,
                            Op op_b = Op::none);
/// Returns the product in `type`: bf16, where both operands are bf16 and a kernel reads it so
/// (random/dropout.hpp), or the type that it has anyway.
[[nodiscard]] Tensor matmul(const Tensor& a, const Tensor& b, Op op_a, Op op_b, DType type);

/// op(a) op(b) added up over the leading axes, which are equal: [m, n].
[[nodiscard]] Tensor matmul_sum(const Tensor& a, const Tensor& b, Op op_a = Op::none,
                                Op op_b = Op::none);

/// c = alpha op(a) op(b) + beta c, shapes as matmul; c must already have the result's shape.
void gemm(const Tensor& a, Op op_a, const Tensor& b, Op op_b, Tensor& c, double alpha = 1,
          double beta = 0);

/// x Wᵀ + b: x [..., in], weight [out, in] (PyTorch's layout), bias [out] or undefined
/// -> [..., out]. x and weight may be operands of bf16.
[[nodiscard]] Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});

/// A row-major matrix [rows, columns] in memory whose rows begin `stride` numbers apart. A product
/// reads it transposed where `op` says so.
template <class T> struct MatrixView {
  T* data;
  std::int64_t rows, columns, stride;
  Op op = Op::none;

  MatrixView(T* begin, std::int64_t r, std::int64_t c) : MatrixView(begin, r, c, c) {}
  MatrixView(T* begin, std::int64_t r, std::int64_t c, std::int64_t apart, Op as = Op::none)
      : data(begin), rows(r), columns(c), stride(apart), op(as) {}
};
template <class T> [[nodiscard]] MatrixView<const T> transposed(MatrixView<const T> matrix) {
  matrix.op = Op::transpose;
  return matrix;
}

/// Building block of tiled kernels on the CPU: c = alpha op(a) op(b) + beta c, by the calling
/// thread alone. T is float or double.
template <class T> void gemm_cpu(T alpha, const MatrixView<const T>& a,
                                 const MatrixView<const T>& b, T beta, const MatrixView<T>& c);

}  // namespace tensor
}  // namespace skytape
