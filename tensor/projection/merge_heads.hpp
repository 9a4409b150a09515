// The last step of a layer's attention: the heads side by side, a projection, dropout and the
// residual.
//
//   y = x + drop(merge(a) Wᵀ + b)        merge: [B, H, N, D] -> [B, N, H D]
//
// Notation: B batch, N tokens, E model width, H heads, D head width.
#pragma once

#include "tensor/core/tensor.hpp"
#include "tensor/random/dropout.hpp"

namespace skytape::tensor {

/// y [B, N, E] of x [B, N, E], a [B, H, N, D], W [E, H D] and b [E]. On CUDA it and its backward
/// are one kernel each for f32 with products at bf16, E of 16, 32 or 64, D a multiple of 4 and H D
/// at most 64, as in the papers' model; elsewhere they are as many operations as the definition
/// has. Throws, naming the operand, where kinds or shapes do not fit.
[[nodiscard]] Tensor merge_heads(const Tensor& x, const Tensor& a, const Tensor& weight,
                                 const Tensor& bias, const Dropout& dropout);

struct MergeGradients {
  Tensor da;       // [B, H, N, D]
  Tensor dweight;  // [E, H D]
  Tensor dbias;    // [E]
};
/// From dy [B, N, E], which is also the gradient of x.
[[nodiscard]] MergeGradients merge_heads_backward(const Tensor& a, const Tensor& weight,
                                                  const Dropout& dropout, const Tensor& dy);

}  // namespace skytape::tensor
