// Measures how far two results are apart.
#pragma once

#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include "tensor/core/tensor.hpp"

namespace skytape::test {

/// Largest |a - b| over all entries; infinity where their numbers differ, or one is NaN, which a
/// maximum passes over.
[[nodiscard]] inline double largest_difference(const std::vector<double>& a,
                                               const std::vector<double>& b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(a[i] - b[i]);
    if (std::isnan(difference)) return std::numeric_limits<double>::infinity();
    if (difference > largest) largest = difference;
  }
  return largest;
}
[[nodiscard]] inline double largest_difference(const Tensor& a, const Tensor& b) {
  return largest_difference(a.to_vector(), b.to_vector());
}

}  // namespace skytape::test
