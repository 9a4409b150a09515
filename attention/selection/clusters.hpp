// Balanced clusters of tokens, as the Routing Transformer forms them: every centroid takes as many
// tokens, those that point most nearly its way. A token may be in several clusters, or in none.
//
// Notation: B batch, H heads, N tokens, D head width, C centroids of a head, w places of a cluster,
// P = C w slots.
#pragma once

#include <cstdint>

#include "tensor/core/tensor.hpp"

namespace skytape::attention {

/// c.x / |c| of each centroid and token, -inf for padding: [B, H, C, N]. x: [B, H, N, D], tokens
/// scaled to unit length (unit_keys of lsh.hpp), centroids: [H, C, D], mask: [B, N].
[[nodiscard]] Tensor cluster_scores(const Tensor& x, const Tensor& centroids, const Tensor& mask);

/// Slots that hold the same token are a list in the order of their clusters, so that who owns a
/// token finds its slots.
struct Clusters {
  Tensor token;  // i32[B, H, P], cluster after cluster, best first
  Tensor used;   // [B, H, P, 1]: 0 where that token is padding, else 1
  Tensor
      weight;  // [B, H, P, 1]: one over the number of clusters that the token is in, 0 for padding
  Tensor first;  // i32[B, H, N]: a token's first slot, -1: none
  Tensor next;   // i32[B, H, P]: the next slot with a slot's token, -1: none
};
/// The w tokens of largest score of every centroid, the first on ties. w <= N.
[[nodiscard]] Clusters balanced_clusters(const Tensor& scores, const Tensor& mask, std::int64_t w);

/// Sums of the real tokens x over those that are nearest to each centroid and over all examples:
/// [H, C, D].
[[nodiscard]] Tensor nearest_sums(const Tensor& x, const Tensor& scores, const Tensor& mask);

/// Rows of the slots, [B, H, P, D], and the adjoint: sums of its slots for each token,
/// [B, H, N, D].
[[nodiscard]] Tensor to_slots(const Tensor& x, const Clusters& clusters);
[[nodiscard]] Tensor from_slots(const Tensor& x, const Clusters& clusters);
/// to_slots, each row times its slot's weight.
[[nodiscard]] Tensor to_weighted_slots(const Tensor& x, const Clusters& clusters);

// The two builds of the kernels behind these. Sums of the nearest tokens are a backend pair: on the
// CPU they are rows added at an index, on the GPU a kernel of their own.

/// Rows scaled to unit length, however short: centroids [H, C, D] -> [B, H, C, D], for all examples
/// alike.
void unit_centroids_on(Cpu, const Tensor& centroids, Tensor& directions);
void unit_centroids_on(Cuda, const Tensor& centroids, Tensor& directions);

/// Fills all but `token`, of which every `window` ones are a cluster's.
void link_slots_on(Cpu, const Tensor& mask, std::int64_t window, Clusters& clusters);
void link_slots_on(Cuda, const Tensor& mask, std::int64_t window, Clusters& clusters);

/// Sums of examples, or of parts of one: [.., H, C, D].
Tensor nearest_sums_on(Cpu, const Tensor& x, const Tensor& scores, const Tensor& mask);
Tensor nearest_sums_on(Cuda, const Tensor& x, const Tensor& scores, const Tensor& mask);

void to_weighted_slots_on(Cpu, const Tensor& x, const Clusters& clusters, Tensor& y);
void to_weighted_slots_on(Cuda, const Tensor& x, const Clusters& clusters, Tensor& y);
void from_slots_on(Cpu, const Tensor& x, const Clusters& clusters, Tensor& y);
void from_slots_on(Cuda, const Tensor& x, const Clusters& clusters, Tensor& y);

}  // namespace skytape::attention
