// The MLP of an encoder layer, from one sum of the residual stream to the next:
//
//   h = norm(x)   z = h W1ᵀ + b1   u = drop1(gelu(z))   y = x + drop2(u W2ᵀ + b2)
//
// In a post-norm layer, which norms y instead, h = x.
//
// Notation: B batch, N tokens, E model width, F feed-forward width.
#pragma once

#include "tensor/core/tensor.hpp"
#include "tensor/norm/layer_norm.hpp"
#include "tensor/random/dropout.hpp"

namespace skytape::tensor {

/// The parameters of an MLP. norm(x) is layer_norm(norm_factor x): see nn::LayerNorm.
struct MlpWeights {
  Tensor norm_weight, norm_bias;  // [E]; undefined: h = x
  double norm_factor = 1;
  Tensor in_weight, in_bias;    // W1 [F, E], b1 [F]
  Tensor out_weight, out_bias;  // W2 [E, F], b2 [E]
};

/// The values that backward reads besides x. One kernel saves `metadata` alone and computes the
/// rest again, which takes less time than reading it; elsewhere the others are saved.
struct MlpSaved {
  Tensor metadata;        // i32 [B, N, 8]: statistics of the norm and dropout's decisions
  LayerNormForward norm;  // of norm_factor x; its y is h, which without a norm is x
  Tensor z, u;  // [B, N, F], z without its bias; h, z and u as operands (gemm/operand.hpp)
};

struct MlpForward {
  Tensor y;  // [B, N, E]
  MlpSaved saved;
};

struct MlpGradients {
  Tensor dx;                        // [B, N, E]
  Tensor dnorm_weight, dnorm_bias;  // [E]; undefined without a norm
  Tensor din_weight, din_bias;      // [F, E], [F]
  Tensor dout_weight, dout_bias;    // [E, F], [E]
};

/// Computes y of x [B, N, E]. With a norm it is one kernel on CUDA for f32 with products at bf16, E
/// of 16, 32 or 64 and F of 16, 32, 64 or 128, as in the papers' model, where a block may have 113
/// KiB of shared memory; elsewhere as many operations as the definition has. Throws, naming the
/// operand, where kinds or shapes do not fit.
[[nodiscard]] MlpForward mlp(const Tensor& x, const MlpWeights& weights, const Dropout& hidden,
                             const Dropout& output);
/// Returns the gradients from what mlp() saved for the same operands, and dy [B, N, E].
[[nodiscard]] MlpGradients mlp_backward(const Tensor& x, const MlpWeights& weights,
                                        const Dropout& hidden, const Dropout& output,
                                        const MlpSaved& saved, const Tensor& dy);

}  // namespace skytape::tensor
