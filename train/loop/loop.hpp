// The training loop: steps, log points, evaluations, checkpoints, selection, and the result.
#pragma once

#include <cstdint>
#include <filesystem>

#include "train/config/run_config.hpp"
#include "train/ranks/ranks.hpp"
#include "train/runs/run_folder.hpp"

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

/// Trains one phase of a run, pre-training or the task as the model's objective says, to its end,
/// to `stop_after` or to a signal, and writes its folder. Returns the exit code: 0, or 129, 130
/// and 143 after SIGHUP, SIGINT and SIGTERM. A finished run is not resumed, its result is printed
/// again; one that has lost a checkpoint is a DataError before the first step. Throws
/// NonFiniteError at the first log point whose loss is not finite. Of several ranks all call this
/// with the same arguments, and all return the same.
int run_phase(const RunConfig& config, const TrainOptions& options);

}  // namespace skytape::train
