// Performer's attention (methods/performer.cpp) at tf32 and bf16 on a GPU: a pass over the keys and
// one over the queries each way, which read q, k, v as they are and write what attention returns.
// Scales, masks, the column of the normaliser and the ratio are made where rows are loaded and
// stored, epsilon and the stabilisers where features are.
//
// Notation: B batch, H heads, N queries and keys, D head width, R random features, P = D + 1.
#pragma once

#include <cstdint>

#include "attention/random_features/random_features.hpp"
#include "tensor/core/tensor.hpp"

namespace skytape::attention {

/// The choices that performer.cpp's (1) to (5) leave open.
struct FeatureAttentionConfig {
  double scale = 1;       // s
  double epsilon = 0;     // of each feature
  bool official = false;  // Y = s mu K and U = [mu V, 1] instead of Y = s K and U = [mu V, mu]
  bool maxima_have_gradients = true;
  std::int64_t scope = 1;  // heads that share c
};

/// The operands of the passes, and the tensors that forward fills for backward.
struct FeatureAttention {
  FeatureAttentionConfig config;
  Tensor q, k, v;                    // [B, H, N, D]
  Tensor mask, w;                    // [B, N], [R, D]
  Tensor out, normaliser;            // O [B, H, N, D], S[:, D] as [B, H, N]
  FeatureMaxima query_maxima, keys;  // of each row, [B, H, N]
  Tensor key_maximum, key_position;  // c [scopes] and where it is among the rows of a scope, i32
  Tensor t;                          // T [B, H, R, P]
};
struct FeatureAttentionGradients {
  Tensor dq, dk, dv;  // [B, H, N, D]
};

/// Returns whether there are passes for such calls: others have the steps of performer.cpp one by
/// one.
[[nodiscard]] bool feature_attention_fits(const Tensor& q, const Tensor& w);

// CUDA alone. Each fills what it computes.
void feature_attention(FeatureAttention& a);
[[nodiscard]] FeatureAttentionGradients feature_attention_backward(const FeatureAttention& a,
                                                                   const Tensor& dout);

}  // namespace skytape::attention
