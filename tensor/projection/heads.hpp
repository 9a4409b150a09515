// Linear projections of one input, stored by head: what a layer's queries, keys and values are.
//
// Notation: B batch, N tokens, E width of the input, P projections, H heads, D head width.
#pragma once

#include <cstdint>
#include <span>

#include "tensor/core/tensor.hpp"

namespace skytape::tensor {

inline constexpr std::size_t kMostProjections = 3;  // P: queries, keys, values

/// y[p, b, h, n, :] = W_p[h D : (h + 1) D, :] x[b, n, :] + b_p[h D : (h + 1) D], for x [B, N, E],
/// weights [H D, E] and biases [H D] (undefined: none): [P, B, H, N, D]. Products have the device's
/// precision. CUDA reads x and writes y once; the CPU has a product for each p. x may be an operand
/// of bf16 (gemm/operand.hpp); then CUDA has one product of the library and a copy by head.
[[nodiscard]] Tensor project_heads(const Tensor& x, std::span<const Tensor> weights,
                                   std::span<const Tensor> biases, std::int64_t heads);

struct ProjectionGradients {
  Tensor dx;        // [B, N, E]
  Tensor dweights;  // [P, H D, E]
  Tensor dbiases;   // [P, H D]
};
/// The gradients of x, weights and biases from dy, P of [B, H, N, D]. An undefined one counts as
/// zero, but at least one is defined. One kernel where that fits: f32 on CUDA, products at bf16, E
/// and D multiples of 4, E and H D at most 64; elsewhere a product each for dx and dweights, of
/// operands of x's type.
[[nodiscard]] ProjectionGradients project_heads_backward(const Tensor& x,
                                                         std::span<const Tensor> weights,
                                                         std::span<const Tensor> dy);

/// y[p, b, h, n, :] += sums[b, n] b_p[h D : (h + 1) D], in place: the biases of projected rows that
/// are sums of others. y: [P, B, H, N, D], sums: [B, N, 1], biases: P of [H D].
void add_biases(Tensor& y, const Tensor& sums, std::span<const Tensor> biases);
struct AddedBiasGradients {
  Tensor dsums;    // [B, N, 1]
  Tensor dbiases;  // [P, H D]
};
/// dy: P of [B, H, N, D]. An undefined one counts as zero, but at least one is defined.
[[nodiscard]] AddedBiasGradients add_biases_backward(const Tensor& sums,
                                                     std::span<const Tensor> biases,
                                                     std::span<const Tensor> dy);

/// P gradients by head as rows of the input's tokens, side by side.
struct GatheredHeads {
  Tensor rows;  // [B N, P H D]
  Tensor sums;  // [P H D], of all rows: the biases' gradients
};
/// parts: P of [B, H, N, D]. An undefined one counts as zero, but at least one is defined. The rows
/// have the parts' type, or on CUDA bf16, where products alone read them (gemm/operand.hpp).
[[nodiscard]] GatheredHeads gather_heads(std::span<const Tensor> parts, DType type_of_rows);

/// The weights one below the other: P of [H D, E] -> [P H D, E].
[[nodiscard]] Tensor stack_weights(std::span<const Tensor> weights);

}  // namespace skytape::tensor
