// Time to accuracy: after how much training a run's dev evaluations first passed an accuracy.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "data/files/json_fwd.hpp"
#include "train/config/recipes.hpp"

namespace skytape::train {

/// The highest accuracy of a task in percent that the Skyformer and Skeinformer papers print, whose
/// models are of one size; nothing for other tasks. Of Image that is BigBird's: Reformer's 48.87 in
/// one paper stands alone, the other gives 36.42 for it.
[[nodiscard]] std::optional<double> best_paper_accuracy(std::string_view task);

/// The evaluation that was the first above an accuracy.
struct Moment {
  std::int64_t step = 0;
  double seconds = 0;       // of training, evaluations not counted
  std::int64_t tokens = 0;  // real ones
  double accuracy = 0;      // what it showed
  double above = 0;         // what it had to exceed; 0: nothing
};

/// Part of a run's state: it resumes after a stop where it was.
struct TimeToAccuracy {
  std::optional<Moment> trivial;  // above what needs no attention
  std::optional<Moment> paper;    // above the papers' best cell of the task
  std::optional<Moment> best;     // the best so far

  /// Takes in a dev evaluation. Returns a line to print for each bar that it is the first to pass:
  /// `baseline`, and the papers' best of the task.
  std::string add(std::string_view task, const TrivialBaseline& baseline, const Moment& evaluation);
};

/// {"trivial": {"above": 0.362, "step": 250, "seconds": …, "tokens": …, "accuracy": …}, "paper":
/// {…}, "best": {…}}; null for what was not passed or is not known.
[[nodiscard]] data::Json to_json(const TimeToAccuracy& times);
/// The inverse; what is missing was not passed.
[[nodiscard]] TimeToAccuracy time_to_accuracy_from(const data::Json& json);

}  // namespace skytape::train
