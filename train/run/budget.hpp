// A run that fits a given time: its steps, by the rate of this machine.
#pragma once

#include <cstdint>

#include "data/batches.hpp"
#include "train/config/run_config.hpp"
#include "train/run/splits.hpp"

namespace skytape::train {

/// Seconds of a training step: `step` + `token` for each token in it.
struct Pace {
  double step = 0, token = 0;
};

/// Tokens that a step computes: all before the padding, also those that attention may not read, or
/// all places where batches are not trimmed since the method reads its padding.
[[nodiscard]] double computed_tokens(const data::Batch& batch);

/// Times some steps of a model that is thrown away, the run's first ones and, where sequences grow,
/// whole ones. What a run refuses before its first step is refused here, too.
[[nodiscard]] Pace measure_pace(const RunConfig& config, const Splits& splits);

/// Seconds of all training steps, evaluations not counted.
[[nodiscard]] double training_seconds(const RunConfig& config, const data::Dataset& train,
                                      const Pace& pace);

/// UsageError where the user chose the steps, which --budget does.
void refuse_steps(const Choices& choices);

struct BudgetedSteps {
  std::int64_t steps = 0;
  double seconds = 0;  // that they will take
};
/// The most steps whose training takes `seconds` at most, in a schedule of that many: what a recipe
/// gives as a part of its steps is the same part of these. Prepares the data where they are
/// missing. UsageError if even the fewest steps that a schedule has take longer.
[[nodiscard]] BudgetedSteps steps_within(double seconds, const Choices& choices);

}  // namespace skytape::train
