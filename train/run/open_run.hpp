// Opening a run: its data, model, weights and folder. What is to be refused is refused here, before
// the first step and before the folder is touched.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "data/files/json.hpp"
#include "nn/model.hpp"
#include "train/config/run_config.hpp"
#include "train/ranks/gradient_sum.hpp"
#include "train/run/run_folder.hpp"
#include "train/run/run_state.hpp"
#include "train/run/splits.hpp"
#include "train/run/train_options.hpp"
#include "train/step/evaluate.hpp"
#include "train/step/microbatches.hpp"
#include "train/step/trainer.hpp"

namespace skytape::train {

class Progress;

/// All that the loop works on.
struct OpenRun {
  TrainOptions options;
  RunConfig config;  // for these data, which may bring a vocabulary
  Splits splits;
  MicrobatchLimits limits;  // of the batches
  std::string who_trains;   // a line on the job of several processes; empty of one
  // Rank 0's; on the others the first is null, and there is none of the rest.
  data::Json json = {};                    // of config.json
  std::optional<data::Json> result = {};   // of an earlier process, which finished the run
  std::unique_ptr<RunFolder> whole = {};   // of the run that this phase is the first of
  std::unique_ptr<RunFolder> folder = {};  // this phase's
  bool finished = false;                   // by an earlier process: nothing below is there
  std::unique_ptr<nn::Model> model = {};
  std::unique_ptr<Trainer> trainer = {};
  std::unique_ptr<Evaluator> evaluator = {};
  // With the other ranks; the trainer refers to it. It goes first: where a rank is missing, it ends
  // the GPU's sum that those two would wait for.
  std::unique_ptr<GradientSum> gradient_sum = {};
  RunState state = {};
  std::int64_t started_at = 0;  // step at which this process took over

  [[nodiscard]] const Ranks& ranks() const { return *options.ranks; }
};

/// Opens a phase of a run at its start or, on --resume, at its last checkpoint. Of several ranks
/// all call it, and all throw where one does.
[[nodiscard]] OpenRun open_run(const RunConfig& config, const TrainOptions& options,
                               Progress& progress);

/// Writes a checkpoint, on rank 0: all have the same weights. However long it takes, the others
/// wait, and all throw what it throws.
void save(const OpenRun& run, const std::filesystem::path& file);

}  // namespace skytape::train
