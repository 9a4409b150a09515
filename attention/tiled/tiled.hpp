// Quadratic attention in tiles: weights of all query-key pairs, of which no n x n array is stored.
//
// Notation: B batch, H heads, N queries, M keys, D head width. The weight of query i for key j is
//     w_ij = exp(score_ij + a_i)      score_ij = scale q_i.k_j + b_j                           (1)
// with the row and column terms of the method:
//     softmax    a_i = -log sum_j exp(score_ij)    b_j = log mask_j
//     gaussian   a_i = -scale |q_i|^2 / 2          b_j = log mask_j - scale |k_j|^2 / 2
// so that the gaussian weight is exp(-scale |q_i - k_j|^2 / 2), from one exponent that is never
// positive beyond rounding. log 0 = -inf: a padded key has weight zero exactly.
#pragma once

#include <cstdint>

#include "attention/method.hpp"
#include "attention/tiled_options.hpp"
#include "tensor/core/tensor.hpp"

namespace skytape::attention {

/// The dropout of one call of a method: none outside training, but an injected "keep" always acts.
[[nodiscard]] WeightDropout weight_dropout(double rate, std::int64_t nominal_length,
                                           const Draws& draws, const Call& call);

/// Softmax of q.k / sqrt(D), nothing dropped.
[[nodiscard]] inline TiledOptions softmax_scores(const Tensor& q) {
  return {Score::softmax, score_scale(q), {}};
}

/// The tensors that the forward pass returns and the backward pass reads.
struct TiledForward {
  Tensor out;  // [B, H, N, D]
  Tensor lse;  // [B, H, N]: log of softmax's row sums; undefined for gaussian
  // i32 [B, H, M' / 128, N', 4]: dropout's decisions about pairs, a bit each (head_dropout.hpp),
  // with N and M rounded up to multiples of 128. Undefined: none, or backward draws them again.
  Tensor kept = {};
};

/// out_i = sum_j w_ij keep_ij v_j, O(N + M) memory. q: [B, H, N, D]; k, v: [B, H, M, D];
/// mask: [B, M] of 0 and 1, or any number that is not negative: how many times a key counts. v may
/// be undefined: then only lse is computed (softmax). Without any real key a softmax row is zero
/// and its lse -inf.
[[nodiscard]] TiledForward tiled_forward(const Tensor& q, const Tensor& k, const Tensor& v,
                                         const Tensor& mask, const TiledOptions& options);

struct TiledBackward {
  Tensor dq;      // [B, H, N, D]
  Tensor dk, dv;  // [B, H, M, D]; dv undefined if v is
};

/// Gradients from dout [B, H, N, D] and, for softmax, dlse [B, H, N]; either may be undefined
/// (zero). Weights are recomputed tile by tile, and so is dropout where forward kept no decisions;
/// the result does not depend on the number of threads.
[[nodiscard]] TiledBackward tiled_backward(const Tensor& q, const Tensor& k, const Tensor& v,
                                           const Tensor& mask, const TiledOptions& options,
                                           const TiledForward& saved, const Tensor& dout,
                                           const Tensor& dlse = {});

/// A method's call: tiled_forward, and tiled_backward once its gradients are asked for.
[[nodiscard]] Result tiled_attention(const Inputs& in, const TiledOptions& options);

/// The factors 0 and 1 / (1 - rate) that tiled attention multiplies its weights by, as
/// [B, H, N, M]: for references and tests.
[[nodiscard]] Tensor weight_dropout_factors(const Shape& shape, const WeightDropout& dropout,
                                            DType dtype, Device device);
/// Weights [B, H, N, M] of a reference, times these factors.
[[nodiscard]] Var drop_weights(Var weights, const WeightDropout& dropout);

}  // namespace skytape::attention
