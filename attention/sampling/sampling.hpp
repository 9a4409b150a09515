// Choosing positions: the largest of a row, and weighted sampling with and without replacement, all
// on the device that holds the weights.
#pragma once

#include <cstdint>

#include "tensor/core/tensor.hpp"
#include "tensor/random/random.hpp"

namespace skytape::attention {

/// Positions of the k largest entries of each row, largest first, the first one on ties; NaN counts
/// as inf, so that it is chosen and seen. values: [..., n], n >= k -> i32[..., k]. With k = n this
/// is a stable descending sort.
[[nodiscard]] Tensor top_k(const Tensor& values, std::int64_t k);

/// Names the random numbers of rows: number i of row r is (first_row + r) row_length + i, so a row
/// that is cut short, or moved to another batch, draws the same. With `alike` rows r and r + alike
/// draw the same: r counts modulo alike.
struct RowNumbers {
  Random random;
  std::int64_t first_row = 0;
  std::int64_t row_length = 0;
  std::int64_t alike = 0;
};

/// k different positions of each row, drawn one after the other with probabilities proportional to
/// the weights of those left (exponential race: the k smallest Exp(1) / weight). weights: [..., n],
/// not negative -> i32[..., k]; positions of weight zero come last, in order.
[[nodiscard]] Tensor sample_without_replacement(const Tensor& weights, std::int64_t k,
                                                const RowNumbers& numbers);

/// k independent positions of each row, with probabilities proportional to the weights (inverse of
/// the cumulative sum). weights: [..., n] -> i32[..., k]; 0 in a row without weight.
[[nodiscard]] Tensor sample_with_replacement(const Tensor& weights, std::int64_t k,
                                             const RowNumbers& numbers);

}  // namespace skytape::attention
