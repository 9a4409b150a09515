// Makes the request of a user of `train` or `pretrain` the configuration of a run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>

#include "data/files/json_fwd.hpp"
#include "train/config/run_config.hpp"
#include "train/run/train_options.hpp"

namespace skytape::train {

struct Request {
  bool pretraining = false;  // `pretrain`
  Choices choices;
  std::set<std::string> said;  // flags behind `choices` that the user gave, as resumed() reads them
  std::filesystem::path out;   // empty: a folder below runs/
  std::int64_t seeds = 1;
  std::string budget;    // time that the run may take, as parse_duration() reads it; empty: any
  TrainOptions options;  // all but `out`
};

/// Completes the request by the run's folder, and by what pre-training chooses.
void complete(Request& request);

/// Returns what the folders of a completed request say, those of the run to resume and of --init:
/// {"saved", "init", "embedding_rows"}. UsageError or DataError for one that does not fit.
[[nodiscard]] data::Json read_folders(const Request& request);

/// Completes the request by the sizes of the encoder in --init and the steps that --budget has time
/// for. Returns the configuration, for a resumed run the saved one. UsageError where flags
/// contradict each other or what the folders hold.
[[nodiscard]] RunConfig plan(Request& request, const data::Json& folders);

}  // namespace skytape::train
