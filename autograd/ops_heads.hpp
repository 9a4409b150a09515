// Several linear projections of one input, stored by head: a layer's queries, keys and values.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "autograd/tape.hpp"

namespace skytape {

/// One of them: weight [H D, E], bias [H D] or undefined.
struct Projection {
  Var weight, bias;
};

/// x Wᵀ + b of each projection by head: x [B, N, E] -> [B, H, N, D] each. On CUDA they are projected
/// at once; on the CPU each is linear, reshape and swap_middle, since one product of all would add
/// in another order and change what runs on the CPU compute.
[[nodiscard]] std::vector<Var> project_heads(Var x, std::span<const Projection> projections,
                                             std::int64_t heads);

/// The same with one product forward, and backward one pass over the gradients and two products, on
/// either device. A projection that nothing reads costs what it would with a gradient of zero.
[[nodiscard]] std::vector<Var> project_heads_at_once(Var x, std::span<const Projection> projections,
                                                     std::int64_t heads);

}  // namespace skytape
