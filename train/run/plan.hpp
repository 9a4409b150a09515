// Makes the request of a user of `train` or `pretrain` the configuration of a run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "train/config/run_config.hpp"
#include "train/run/train_options.hpp"

namespace skytape::train {

struct Request {
  bool pretraining = false;  // `pretrain`
  Choices choices;
  std::filesystem::path out;  // empty: a folder below runs/
  std::int64_t seeds = 1;
  std::string budget;    // time that the run may take, as parse_duration() reads it; empty: any
  TrainOptions options;  // all but `out`
  bool runs = true;      // false: only the configuration is asked for
};

/// Completes the request by the run's folder, what pre-training chooses, the sizes of the encoder
/// in --init and the steps that --budget has time for. Returns the configuration, for a resumed run
/// the saved one; all ranks have what the first one finds in the folders. UsageError or DataError
/// where flags contradict each other or what the folders hold.
[[nodiscard]] RunConfig plan(Request& request);

}  // namespace skytape::train
