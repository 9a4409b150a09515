// The objective of a phase of a run, as its loop sees it: the task, or tokens that were hidden
// (Objective of the model).
#pragma once

#include <string>

#include "data/batches.hpp"
#include "data/files/json_fwd.hpp"
#include "data/loader.hpp"
#include "train/config/run_config.hpp"

namespace skytape::train {

[[nodiscard]] bool predicts_masked(const RunConfig& config);

/// The training batches from `start` on, of the training split alone; tokens are hidden in them
/// where they are predicted.
[[nodiscard]] data::Loader::Fill training_batches(const RunConfig& config,
                                                  const data::Dataset& train, data::Cursor start);

/// Returns a line for people on what the phase predicts; empty of the task.
[[nodiscard]] std::string objective_text(const RunConfig& config);

/// Loss and accuracy of a log point or an evaluation: "loss 1.2003  accuracy 45.10 %"; of hidden
/// tokens with the perplexity, of hidden pixels in intensities.
[[nodiscard]] std::string scores_text(const RunConfig& config, double loss, double accuracy);

/// Adds to a metric what its phase says besides loss and accuracy: of pre-training "phase", and of
/// ids "perplexity".
void add_objective(data::Json& metric, const RunConfig& config, double loss);

}  // namespace skytape::train
