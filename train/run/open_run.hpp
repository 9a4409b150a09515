// Opening a run: its data, model, weights and folder. What is to be refused is refused here, before
// the first step and before the folder is touched.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

#include "data/files/json.hpp"
#include "nn/model.hpp"
#include "train/config/run_config.hpp"
#include "train/process/progress.hpp"
#include "train/ranks/ranks.hpp"
#include "train/run/checkpoint.hpp"
#include "train/run/run_folder.hpp"
#include "train/run/splits.hpp"
#include "train/step/evaluate.hpp"
#include "train/step/trainer.hpp"

namespace skytape::train {

struct TrainOptions {
  std::filesystem::path out;  // the run's folder
  RunFolder::Existing existing = RunFolder::Existing::refuse;
  std::int64_t stop_after = 0;  // step to stop at with a checkpoint; 0: never
  std::int64_t log_every = 50;  // steps
  bool check_finite = false;    // name the first op that is not finite; slow
  bool graphs = true;           // false: submit steps op by op on a GPU too
  /// Weights to start from, of a run's folder or of one checkpoint file; empty: drawn. Encoder and
  /// embeddings must fit; the head of the task, and what a method of another name has of its own,
  /// start fresh.
  std::filesystem::path init;
  /// Of a first phase: the folder of the whole run, which is held, and by `replace` emptied, with
  /// its own. Empty: this phase is a run by itself.
  std::filesystem::path part_of;
  /// Who trains together: the folder and `init` are those of rank 0, which writes and prints.
  const Ranks* ranks = &kAlone;
};

/// All that the loop works on.
struct OpenRun {
  TrainOptions options;
  RunConfig config;  // for these data, which may bring a vocabulary
  Splits splits;
  // Rank 0's; on the others the first is null, and there is none of the rest.
  data::Json json = {};                    // of config.json
  std::optional<data::Json> result = {};   // of an earlier process, which finished the run
  std::unique_ptr<RunFolder> whole = {};   // of the run that this phase is the first of
  std::unique_ptr<RunFolder> folder = {};  // this phase's
  bool finished = false;                   // by an earlier process: nothing below is there
  std::unique_ptr<nn::Model> model = {};
  std::unique_ptr<Trainer> trainer = {};
  std::unique_ptr<Evaluator> evaluator = {};
  RunState state = {};
  std::int64_t started_at = 0;  // step at which this process took over

  [[nodiscard]] const Ranks& ranks() const { return *options.ranks; }
};

/// Opens a phase of a run at its start or, on --resume, at its last checkpoint. Of several ranks
/// all call it, and all throw where one does.
[[nodiscard]] OpenRun open_run(const RunConfig& config, const TrainOptions& options,
                               Progress& progress);

/// Writes a checkpoint, on rank 0: all have the same weights.
void save(OpenRun& run, const std::filesystem::path& file);

}  // namespace skytape::train
