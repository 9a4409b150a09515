// The weights of a run that are tested, and the end of a run by patience.
#include "train/run/selection.hpp"

#include <cstdint>
#include <vector>

#include "tests/support/doctest.hpp"
#include "train/config/run_config.hpp"
#include "train/run/run_state.hpp"
#include "train/step/evaluate.hpp"

using namespace skytape::train;

namespace {

/// A run of ten steps with an evaluation after each.
RunConfig ten_steps(Select by, double select_after = 0) {
  RunConfig config;
  config.schedule.steps = 10;
  config.select = by;
  config.select_after = select_after;
  return config;
}

/// The steps whose weights are kept in turn, by the figures of steps 1, 2, …
std::vector<std::int64_t> kept(const RunConfig& config, const std::vector<double>& accuracies,
                               const std::vector<double>& losses, RunState& state) {
  std::vector<std::int64_t> steps;
  for (std::size_t i = 0; i < accuracies.size(); ++i) {
    Evaluation dev;
    dev.accuracy = accuracies[i];
    dev.loss = losses[i];
    state.step = static_cast<std::int64_t>(i) + 1;
    if (select(config, dev, state)) steps.push_back(state.step);
  }
  return steps;
}

const std::vector<double> kAccuracies = {0, 30, 30, 20, 40, 10};
const std::vector<double> kLosses = {3, 2, 1, 1, 2, 0.5};

}  // namespace

TEST_CASE("the best weights so far are kept, of equals the earlier") {
  RunState state;
  CHECK(kept(ten_steps(Select::best_accuracy), kAccuracies, kLosses, state) ==
        std::vector<std::int64_t>{1, 2, 5});
  CHECK(state.best_step == 5);
  CHECK(state.best_metric == 40);
  CHECK(state.stale == 1);
  state = {};
  CHECK(kept(ten_steps(Select::best_loss), kAccuracies, kLosses, state) ==
        std::vector<std::int64_t>{1, 2, 3, 6});
  CHECK(state.stale == 0);
}

TEST_CASE("early evaluations count only while there is no later one") {
  RunState state;
  // Step 4 is the first that counts, and the best of those whatever went before.
  CHECK(kept(ten_steps(Select::best_accuracy, 0.35), kAccuracies, kLosses, state) ==
        std::vector<std::int64_t>{1, 2, 4, 5});
  CHECK(state.selecting);
  // The step at which that share is reached counts itself.
  state = {};
  CHECK(kept(ten_steps(Select::best_accuracy, 0.4), kAccuracies, kLosses, state) ==
        std::vector<std::int64_t>{1, 2, 4, 5});
  state = {};
  CHECK(kept(ten_steps(Select::best_accuracy, 0.5), kAccuracies, kLosses, state) ==
        std::vector<std::int64_t>{1, 2, 5});
}

TEST_CASE("a run is stale after so many evaluations without a better one") {
  RunConfig config = ten_steps(Select::best_accuracy);
  RunState state;
  (void)kept(config, {50, 40, 40}, {1, 1, 1}, state);
  CHECK_FALSE(is_stale(config, state));  // patience 0: never
  config.patience = 3;
  CHECK_FALSE(is_stale(config, state));
  config.patience = 2;
  CHECK(is_stale(config, state));
  // Steps 2 to 4 are before the selection, step 5 begins it, and step 7 is the second without
  // progress.
  config.select_after = 0.5;
  state = {};
  (void)kept(config, {50, 40, 40, 40, 30, 20}, {1, 1, 1, 1, 1, 1}, state);
  CHECK_FALSE(is_stale(config, state));
  state = {};
  (void)kept(config, {50, 40, 40, 40, 30, 20, 30}, {1, 1, 1, 1, 1, 1, 1}, state);
  CHECK(is_stale(config, state));
  CHECK(state.best_step == 5);
}
