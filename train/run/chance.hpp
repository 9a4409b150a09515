// A run that has learnt nothing of its examples yet: its loss is that of who answers by how often
// each label occurs.
#pragma once

#include <cstdint>
#include <deque>

#include "data/cache/dataset.hpp"
#include "nn/config/model_config.hpp"

namespace skytape::train {

/// The lowest training loss without a look at the examples: the entropy of their labels, with the
/// model's class weights and label smoothing.
[[nodiscard]] double label_entropy(const data::Dataset& train, const nn::ModelConfig& model);

/// Watches a run's log points. It says something once, when the run stands at chance although its
/// warm-up and a tenth of its steps have passed, and while there are steps left.
class ChanceWatch {
 public:
  /// `entropy`: label_entropy(). `warmup`, `steps`: of the schedule.
  ChanceWatch(double entropy, std::int64_t warmup, std::int64_t steps);

  /// Takes the mean loss of the steps since the log point before, up to `step`. Whether the run
  /// stands at chance: by the mean over its latest steps, a tenth of the run, and by this loss
  /// alone, which tells first when a run leaves it.
  [[nodiscard]] bool stands_at_chance(std::int64_t step, double loss);

  [[nodiscard]] double entropy() const { return entropy_; }
  /// Over the latest steps, and how many these are.
  [[nodiscard]] double mean_loss() const;
  [[nodiscard]] std::int64_t mean_steps() const;

 private:
  struct LogPoint {
    std::int64_t steps;  // since the one before
    double loss;         // their mean
  };

  double entropy_;
  std::int64_t warmup_, steps_, tenth_;
  std::int64_t logged_ = 0;      // the last log point's step
  std::deque<LogPoint> latest_;  // behind the warm-up
};

}  // namespace skytape::train
