// Differentiable operations on Vars. Each is one short function in ops_*.cpp: forward, then the
// derivative in the closure. Elementwise ones broadcast as tensor/kernels/elementwise.hpp says.
#pragma once

#include <span>
#include <vector>

#include "autograd/tape.hpp"
#include "tensor/gemm/gemm.hpp"

namespace skytape {

struct Dropout;  // tensor/random/dropout.hpp
namespace tensor {
struct TokenWeights;  // tensor/norm/norm_pool.hpp
}

// Elementwise (ops_elementwise.cpp)
[[nodiscard]] Var operator+(Var a, Var b);
[[nodiscard]] Var operator-(Var a, Var b);
[[nodiscard]] Var operator*(Var a, Var b);
[[nodiscard]] Var operator/(Var a, Var b);
[[nodiscard]] Var affine(Var x, double scale, double shift = 0);  ///< scale * x + shift

// Functions of one variable (tensor/kernels/elementwise.def)
[[nodiscard]] Var negate(Var x);
[[nodiscard]] inline Var operator-(Var x) { return negate(x); }
[[nodiscard]] Var exp(Var x);
[[nodiscard]] Var log(Var x);
[[nodiscard]] Var sqrt(Var x);
[[nodiscard]] Var reciprocal(Var x);
[[nodiscard]] Var square(Var x);
[[nodiscard]] Var relu(Var x);
[[nodiscard]] Var gelu(Var x);  ///< exact: x Φ(x)

// Reductions over one axis, which is removed unless `keep` (ops_reduce.cpp)
[[nodiscard]] Var sum(Var x, int axis, bool keep = false);
[[nodiscard]] Var mean(Var x, int axis, bool keep = false);
[[nodiscard]] Var max(Var x, int axis, bool keep = false);  ///< gradient to the first maximum
[[nodiscard]] Var sum_all(Var x);                           ///< scalar
[[nodiscard]] Var softmax(Var x);                           ///< over the last axis
[[nodiscard]] Var logsumexp(Var x);                         ///< over the last axis, removed

// Products (ops_product.cpp)
/// op(a) op(b) of the last two axes. The axes before them are equal, or one operand is a matrix.
[[nodiscard]] Var matmul(Var a, Var b, Op op_a = Op::none, Op op_b = Op::none);
/// y = x Wᵀ + b; x: [..., in], weight: [out, in] (PyTorch's layout), bias: [out] or undefined.
[[nodiscard]] Var linear(Var x, Var weight, Var bias);

// Layout (ops_layout.cpp)
[[nodiscard]] Var reshape(Var x, const Shape& shape);
[[nodiscard]] Var transpose(Var x);    ///< last two axes
[[nodiscard]] Var swap_middle(Var x);  ///< [B, N, H, D] <-> [B, H, N, D]
[[nodiscard]] Var concat(std::span<const Var> parts, int axis);
[[nodiscard]] inline Var concat(std::initializer_list<Var> parts, int axis) {
  return concat(std::span<const Var>(parts.begin(), parts.size()), axis);
}
[[nodiscard]] Var narrow(Var x, int axis, std::int64_t begin, std::int64_t end);
[[nodiscard]] Var expand(Var x, const Shape& shape);
/// Rows by index, as tensor::gather_rows; repeated indices accumulate their gradients.
[[nodiscard]] Var gather_rows(Var x, const Tensor& index);
/// Zeros [..., n, p] with y's rows added at index: the adjoint of gather_rows.
[[nodiscard]] Var scatter_rows(Var y, const Tensor& index, std::int64_t n);

// Network pieces (ops_network.cpp)
[[nodiscard]] Var embedding(Var table, const Tensor& ids);
[[nodiscard]] Var layer_norm(Var x, Var weight, Var bias);
[[nodiscard]] Var dropout(Var x, const Dropout& options);
/// Mean cross entropy, a scalar; logits: [B, C], labels: i32[B].
[[nodiscard]] Var cross_entropy(Var logits, const Tensor& labels);
/// Cross entropy of each example, [B]; logits: [B, C], labels: i32[B].
[[nodiscard]] Var cross_entropy_rows(Var logits, const Tensor& labels);
/// x with padded rows zeroed: x: [B, N, E] or [B, H, N, D], mask: [B, N].
[[nodiscard]] Var mask_rows(Var x, const Tensor& mask, double scale = 1);

// Layer norm and the operations beside or behind it (ops_norm.cpp)
/// y = layer_norm(x) for one or two readers, and x for a residual connection past them.
struct NormBeside {
  Var x;
  std::vector<Var> y;  // the same value for each reader
};
/// The gradients of all readers and of the residual connection meet in the norm's backward.
[[nodiscard]] NormBeside layer_norm_beside(Var x, Var weight, Var bias, int readers);
/// The weighted sum of a sequence's normed tokens, [B, E] (tensor/norm/norm_pool.hpp).
[[nodiscard]] Var norm_pool(Var x, Var weight, Var bias, const Tensor& mask,
                            const tensor::TokenWeights& rule);

}  // namespace skytape
