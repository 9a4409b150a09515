// The instability score of the Skyformer paper (appendix F), and the failure that it warns of.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "data/cache/dataset.hpp"
#include "data/files/json_fwd.hpp"
#include "train/config/run_config.hpp"
#include "train/formats/table.hpp"

namespace skytape::train {

/// tau_i = |f(x_i, W_i) - f(x_i, W_{i-1})|_F^2 / |W_i - W_{i-1}|_F^2, f the embedding after the
/// last layer and its norm, x_i the i-th batch, W_i all trainable weights after the step on it. The
/// paper does not say what dropout does meanwhile, and it decides which methods come out as stable:
struct InstabilityScores {
  std::vector<double> weights;  // f in evaluation mode, same draws on both sides: the weights alone
  std::vector<double> dropout;  // f as training computes it: each side draws its own masks
};

/// Scores of the first `steps` steps of a fresh model.
[[nodiscard]] InstabilityScores instability_scores(const RunConfig& config,
                                                   const data::Dataset& train, std::int64_t steps);

/// Scores of several methods on several tasks: [task][method], one for each step. A task without
/// data has no entry.
struct StabilityStudy {
  std::vector<std::string> methods, tasks;
  std::map<std::string, std::map<std::string, InstabilityScores>> scores;
  std::vector<std::string> missing;  // "task: why"
};

struct StabilityOptions {
  std::vector<std::string> methods, tasks;
  Choices base;             // recipe, seed, device, data root
  std::int64_t steps = 20;  // the paper: 20
  std::int64_t batch = 4;   // examples; 0: the recipe's
};
/// DataError if no task has data.
[[nodiscard]] StabilityStudy measure_stability(const StabilityOptions& options);

/// Ratio to softmax's score of the same step, averaged over the steps: rows per method of either
/// score, and of the paper's Table 3.
[[nodiscard]] Table stability_table(const StabilityStudy& study);
/// Mean score, mean ratio and its standard error of every task, method and kind of score.
[[nodiscard]] Table score_table(const StabilityStudy& study);

/// Norm of the gradient before clipping, and loss, of each step.
struct GradientTrace {
  std::string method;
  std::vector<double> norm, loss;  // one entry per step done
  std::int64_t failed_at = 0;      // step whose loss or gradient was not finite; 0: none
};
/// Trains a fresh model and stops at the first number that is not finite.
[[nodiscard]] GradientTrace trace_gradients(const RunConfig& config, const data::Dataset& train);

[[nodiscard]] Table gradient_table(const std::vector<GradientTrace>& traces);
/// The norm and the loss of every step.
[[nodiscard]] data::Json to_json(const std::vector<GradientTrace>& traces);

}  // namespace skytape::train
