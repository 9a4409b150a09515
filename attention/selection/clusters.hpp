// Balanced clusters of tokens, as the Routing Transformer forms them: every centroid takes as many
// tokens, those that point most nearly its way. A token may be in several clusters, or in none.
//
// Letters: B batch, H heads, N tokens, D head width, C centroids of a head, w places of a cluster,
// P = C w slots.
#pragma once

#include <cstdint>

#include "tensor/core/tensor.hpp"

namespace skytape::attention {

/// c.x / |c| of each centroid and token, -inf for padding: [B, H, C, N]. x: [B, H, N, D], tokens
/// scaled to unit length (unit_keys of lsh.hpp), centroids: [H, C, D], mask: [B, N].
[[nodiscard]] Tensor cluster_scores(const Tensor& x, const Tensor& centroids, const Tensor& mask);

struct Clusters {
  Tensor token;  // i32[B, H, P], cluster after cluster, best first
  Tensor used;   // [B, H, P, 1]: 0 where that token is padding, else 1
};
/// The w tokens of largest score of every centroid, the first on ties. w <= N.
[[nodiscard]] Clusters balanced_clusters(const Tensor& scores, const Tensor& mask, std::int64_t w);

/// Sums of the real tokens x over those that are nearest to each centroid and over all examples:
/// [H, C, D].
[[nodiscard]] Tensor nearest_sums(const Tensor& x, const Tensor& scores, const Tensor& mask);

/// One over the number of clusters that the token of a slot is in, 0 for padding: [B, H, P, 1].
[[nodiscard]] Tensor slot_weights(const Clusters& clusters, std::int64_t tokens);

/// Rows of the slots, [B, H, P, D], and the adjoint: sums of its slots for each token, [B, H, N, D].
[[nodiscard]] Tensor to_slots(const Tensor& x, const Clusters& clusters);
[[nodiscard]] Tensor from_slots(const Tensor& x, const Clusters& clusters, std::int64_t tokens);

}  // namespace skytape::attention
