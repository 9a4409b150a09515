// A model's answer about an example: the class whose probability, averaged over draws of the
// method, is the largest.
//
// Notation: K draws, C classes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace skytape::train {

struct Answer {
  std::vector<double> log_probabilities;  // [C], of the means over the draws
  std::int64_t label = 0;                 // the most probable one; of equals the first
  std::vector<std::int64_t> of_draws;     // [K], what each draw alone would say

  /// Returns whether every draw alone says the same.
  [[nodiscard]] bool unanimous() const;
};

/// The answer that scores [K, C] give, draw by draw; nothing if one of them is not finite, for what
/// is not a number has no largest.
[[nodiscard]] std::optional<Answer> answer_of(std::span<const double> scores, std::int64_t draws);

}  // namespace skytape::train
