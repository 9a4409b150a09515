// The sums of a look-up's backward, CUDA only.
#pragma once

#include <cstdint>

#include "tensor/core/tensor.hpp"
#include "tensor/random/dropout_plan.hpp"

namespace skytape::tensor {

/// Returns whether shared memory holds a table of so many rows for every lane of a warp.
[[nodiscard]] bool token_table_fits(std::int64_t rows, DType dtype);

/// Computes, from d = drop(dx) [B, N, E], each of these that is defined: d itself; dsecond [N, E],
/// its sums over B; and dtable [V, E], its sums over the tokens ids i32[B, N] that are v, for a
/// table that fits. Element numbers of two sequences are `numbers` apart. What is to be dropped
/// begins with a chunk in every sequence, and E divides 128 or is divided by it.
void token_sums_on(Cuda, const DropoutPlan& drop, std::int64_t numbers, const Tensor& dx,
                   const Tensor& ids, Tensor& d, Tensor& dsecond, Tensor& dtable);

}  // namespace skytape::tensor
