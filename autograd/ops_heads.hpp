// The projections around attention: several of one input, stored by head, which are a layer's
// queries, keys and values, and the one of its heads side by side.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "autograd/tape.hpp"
#include "tensor/random/dropout.hpp"

namespace skytape {

/// One of them: weight [H D, E], bias [H D] or undefined.
struct Projection {
  Var weight, bias;
};

/// x Wᵀ + b of each projection by head: x [B, N, E] -> [B, H, N, D] each; with sums [B, N, 1], for
/// rows that are sums of others, x Wᵀ + sums b (each has a bias then). A projection that nothing
/// reads costs what it would with a gradient of zero.
[[nodiscard]] std::vector<Var> project_heads(Var x, std::span<const Projection> projections,
                                             std::int64_t heads, Var sums = {});

/// x + drop(merge(a) Wᵀ + b): x [B, N, E], a [B, H, N, D], W [E, H D], b [E] -> [B, N, E].
[[nodiscard]] Var merge_heads(Var x, Var a, Var weight, Var bias, const Dropout& dropout);

}  // namespace skytape
