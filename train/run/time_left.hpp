// Estimates the work of training, and the time that is left, for sequences that grow on the way.
#pragma once

#include <cstdint>
#include <vector>

#include "data/batches.hpp"

namespace skytape::train {

/// Counts a step's work in tokens of the split's mean example, cut as the step cuts it, also those
/// that attention may not read; what a step costs whatever its length is left out.
class TimeLeft {
 public:
  /// Reads the lengths of all examples once. `steps`: of the whole run.
  TimeLeft(const data::Dataset& train, const data::BatchOptions& batches, std::int64_t steps);

  /// Seconds for the steps from `to` on, if those of [from, to) took `seconds`. from < to.
  [[nodiscard]] double after(double seconds, std::int64_t from, std::int64_t to) const;
  /// Tokens that the mean example has in all steps together.
  [[nodiscard]] double tokens() const { return before(steps_); }

 private:
  [[nodiscard]] double before(std::int64_t step) const;  // of all steps before this one

  std::int64_t steps_;
  std::vector<double> growing_ = {0};  // the same, as long as sequences grow
  double grown_ = 0;                   // of each step after that
};

}  // namespace skytape::train
