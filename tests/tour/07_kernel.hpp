// The interface of page 7's kernels (07_kernel.cu).
#pragma once

#include "tensor/core/device.hpp"
#include "tensor/core/tensor.hpp"

namespace skytape::tour {

constexpr int kHeadWidth = 32;        // D
constexpr float kScale = 0.1767767f;  // 1 / sqrt(D)

enum class Version { naive, one_pass, tiles, registers, tensor_cores };

/// Attention of one head; q, k, v: f32 [N, D] on the GPU, N a multiple of 64 -> [N, D].
Tensor attend_on(Cuda, Version version, const Tensor& q, const Tensor& k, const Tensor& v);

/// Lanes by the entries that they hold: i32, A [16, 16], B [16, 8] and C [16, 8] of a product of
/// tiles.
struct LaneMaps {
  Tensor a, b, c;
};
LaneMaps lane_maps_on(Cuda);

}  // namespace skytape::tour
