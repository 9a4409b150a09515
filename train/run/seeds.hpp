// One configuration under several seeds: the runs one after another, and their summary.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "data/files/json.hpp"
#include "train/config/run_config.hpp"
#include "train/formats/table.hpp"
#include "train/run/train_options.hpp"

namespace skytape::train {

/// A seed with its result.json; nothing where the run is not finished.
struct SeedResult {
  std::uint64_t seed = 0;
  std::optional<data::Json> result;
};

/// UsageError if there are not `count` seeds from the first one on.
void check_seeds(std::uint64_t first, std::int64_t count);

/// Trains `choices` under `count` seeds, the given one and those after it, each in its own run
/// folder below `options.out`; after a signal no further one starts. Prints the summary and writes
/// it to `<out>/<task>-<attention>-<recipe>-s<first>-<last>.txt`. Returns the exit code as train()
/// does. UsageError before the first step if a folder may not be touched.
int train_seeds(Choices choices, std::int64_t count, TrainOptions options);

/// The summary: a row per seed, then mean, lowest and highest of the finished ones; nothing where
/// there is no result.
[[nodiscard]] Table seed_table(const std::vector<SeedResult>& seeds);

}  // namespace skytape::train
