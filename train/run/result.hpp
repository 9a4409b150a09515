// result.json and what a finished run says.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "data/files/json_fwd.hpp"
#include "train/config/recipes.hpp"
#include "train/run/run_state.hpp"
#include "train/step/evaluate.hpp"

namespace skytape::train {

struct RunConfig;

/// The outcome of a run.
struct Outcome {
  RunState state;
  std::int64_t selected_step = 0;  // whose weights were tested
  std::int64_t parameters = 0;
  std::int64_t ranks = 1;                  // that trained to the end
  double exchange_seconds = 0;             // of theirs, while training in this process
  StepCounts steps;                        // of this process
  Evaluation dev, test;                    // whole splits, or final_examples of them
  std::vector<double> class_weights = {};  // [C] of the training loss; empty: all 1
};

/// The object of result.json; `full_config` is that of config.json.
[[nodiscard]] data::Json result_json(const RunConfig& config, const data::Json& full_config,
                                     const Outcome& outcome);

/// DataError naming `file` and the part, if a part of a result.json is of another kind than it
/// should be.
void check_result(const data::Json& result, const std::string& file);

/// A result.json. DataError naming the file if it is missing, broken, or lacks a figure.
[[nodiscard]] data::Json read_result(const std::filesystem::path& file);
/// The same of a pre-training.
[[nodiscard]] data::Json read_pretraining_result(const std::filesystem::path& file);

/// The result of a run folder that is finished under this configuration, of which what
/// identity_of() says and the seed count. Nothing if there is none, or a broken one: the run goes
/// on from its checkpoint and writes it anew.
[[nodiscard]] std::optional<data::Json> finished_result(const std::filesystem::path& folder,
                                                        const data::Json& full_config);

/// The figures of a result, of the task or of pre-training, on stdout.
void print_result(const data::Json& result, const std::filesystem::path& file);

/// result.json of a pre-training, whose dev evaluation is over hidden tokens; it has no test.
[[nodiscard]] data::Json pretraining_result_json(const RunConfig& config,
                                                 const data::Json& full_config,
                                                 const Outcome& outcome);

/// The share of the task's examples that needs no attention: measured once for the benchmark's
/// tasks, of custom data what the run's result.json says. Negative: not known. `result` may be
/// null.
[[nodiscard]] double trivial_share(const std::string& task, const data::Json& result);

/// Returns the accuracy that needs no attention on the examples of an evaluation: what is known of
/// the task; of custom data the share of the largest class of these examples.
[[nodiscard]] TrivialBaseline baseline_of(const RunConfig& config, const Evaluation& examples);

/// A warning when the test accuracy is not above what needs no attention; else empty.
[[nodiscard]] std::string baseline_warning(const RunConfig& config, const Evaluation& test);

}  // namespace skytape::train
