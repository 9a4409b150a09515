// The options of training besides a run's configuration: nothing here decides a number of its
// result.
#pragma once

#include <cstdint>
#include <filesystem>

#include "train/ranks/ranks.hpp"

namespace skytape::train {

/// The treatment of a run that is in the folder already. after_first: this is the second phase of a
/// run whose first one is there.
enum class ExistingRun { refuse, resume, replace, after_first };

struct TrainOptions {
  std::filesystem::path out;  // the run's folder
  ExistingRun existing = ExistingRun::refuse;
  [[nodiscard]] bool resumes() const { return existing == ExistingRun::resume; }
  std::int64_t stop_after = 0;  // step to stop at with a checkpoint; 0: never
  std::int64_t log_every = 50;  // steps
  bool check_finite = false;    // name the first op that is not finite; slow
  bool graphs = true;           // false: submit steps op by op on a GPU too
  /// Weights to start from, of a run's folder or of one checkpoint file; empty: drawn. Encoder and
  /// embeddings must fit; the head of the task, and what a method of another name has of its own,
  /// start fresh.
  std::filesystem::path init;
  /// The folder of the whole run, if this is a first phase: it is held, and by `replace` emptied,
  /// with the phase's own. Empty: this phase is a run by itself.
  std::filesystem::path part_of;
  /// Who trains together: the folder and `init` are those of rank 0, which writes and prints.
  const Ranks* ranks = &kAlone;
};

}  // namespace skytape::train
