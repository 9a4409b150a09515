// The MLP of a pre-norm encoder layer, from one sum of the residual stream to the next:
//
//   h = norm(x)   z = h W1ᵀ + b1   u = drop1(gelu(z))   y = x + drop2(u W2ᵀ + b2)
//
// Notation: B batch, N tokens, E model width, F feed-forward width.
#pragma once

#include "tensor/core/tensor.hpp"
#include "tensor/random/dropout.hpp"

namespace skytape::tensor {

/// The parameters of an MLP. norm(x) is layer_norm(norm_factor x): see nn::LayerNorm.
struct MlpWeights {
  Tensor norm_weight, norm_bias;  // [E]
  double norm_factor = 1;
  Tensor in_weight, in_bias;    // W1 [F, E], b1 [F]
  Tensor out_weight, out_bias;  // W2 [E, F], b2 [E]
};

struct MlpForward {
  Tensor y;      // [B, N, E]
  Tensor facts;  // i32 [B, N, 8], for backward: statistics and dropout's decisions; one kernel only
};

struct MlpGradients {
  Tensor dx;                        // [B, N, E]
  Tensor dnorm_weight, dnorm_bias;  // [E]
  Tensor din_weight, din_bias;      // [F, E], [F]
  Tensor dout_weight, dout_bias;    // [E, F], [E]
};

/// Returns whether mlp and mlp_backward are one kernel each: f32 on CUDA, products at bf16, E of
/// 16, 32 or 64 and F of 16, 32, 64 or 128, as in the papers' model. Elsewhere they are as many
/// operations as the definition has, and a caller that records these one by one saves their results
/// for backward.
[[nodiscard]] bool mlp_is_one_kernel(const Tensor& x, const MlpWeights& weights);

/// Computes y of x [B, N, E]. Throws, naming the operand, where kinds or shapes do not fit.
[[nodiscard]] MlpForward mlp(const Tensor& x, const MlpWeights& weights, const Dropout& hidden,
                             const Dropout& output);
/// Everything else between x and y is computed again.
[[nodiscard]] MlpGradients mlp_backward(const Tensor& x, const MlpWeights& weights,
                                        const Dropout& hidden, const Dropout& output,
                                        const Tensor& facts, const Tensor& dy);

}  // namespace skytape::tensor
