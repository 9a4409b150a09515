// The two builds of the kernels behind clusters.cpp. Sums of the nearest tokens are a pair of twins: on
// the CPU they are rows added at an index, on the GPU a kernel of their own.
#pragma once

#include <cstdint>

#include "attention/selection/clusters.hpp"
#include "tensor/core/device.hpp"

namespace skytape::attention {

/// Rows scaled to unit length, however short: centroids [H, C, D] -> [B, H, C, D], for all examples alike.
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
