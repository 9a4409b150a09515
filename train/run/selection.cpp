#include "train/run/selection.hpp"

#include "train/config/run_config.hpp"
#include "train/run/run_state.hpp"
#include "train/step/evaluate.hpp"

namespace skytape::train {

bool select(const RunConfig& config, const Evaluation& dev, RunState& state) {
  const bool counts =
      static_cast<double>(state.step) >= config.select_after * static_cast<double>(config.steps());
  if (counts && !state.selecting) {
    state.selecting = true;
    state.best_step = -1;
  }
  const bool by_accuracy = config.select == Select::best_accuracy;
  const double metric = by_accuracy ? dev.accuracy : dev.loss;
  const bool better = by_accuracy ? metric > state.best_metric : metric < state.best_metric;
  if (state.best_step >= 0 && !better) {
    if (counts) ++state.stale;
    return false;
  }
  state.best_metric = metric;
  state.best_step = state.step;
  state.stale = 0;
  return true;
}

bool is_stale(const RunConfig& config, const RunState& state) {
  return config.patience > 0 && state.stale >= config.patience;
}

}  // namespace skytape::train
