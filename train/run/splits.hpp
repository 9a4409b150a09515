// The prepared data of a run.
#pragma once

#include <filesystem>

#include "data/cache/dataset.hpp"
#include "data/files/json_fwd.hpp"
#include "train/config/run_config.hpp"
#include "train/process/progress.hpp"

namespace skytape::train {

/// Prepares the task's data unless they are there: generates them, saying so. DataError with the
/// command to type when they cannot be generated. `provenance` is that of the data of a run which
/// continues, else null: its data are generated again, by the settings that it names. DataError if
/// they were not generated, or by another generator.
void ensure_prepared(const data::TaskInfo& task, const std::filesystem::path& root,
                     const data::Json& provenance, Progress& progress);

struct Splits {
  data::Dataset train, dev, test;
};

/// Opens all splits of a run, prepared or not.
[[nodiscard]] Splits open_splits(const RunConfig& config, Progress& progress);

/// The configuration for these training data, which may bring a vocabulary.
[[nodiscard]] RunConfig config_for(const RunConfig& config, const data::Dataset& train);

/// The model for these training data, which say how many classes there are. UsageError where they
/// have no labels, and it is to learn some.
[[nodiscard]] nn::ModelConfig model_for(const RunConfig& config, const data::Dataset& train);

/// Returns the metadata that a reader of the weights needs without skytape: train/run/checkpoint.md
/// lists it.
[[nodiscard]] data::Json model_facts(const RunConfig& config, const data::Dataset& train);

/// Returns the names of the splits, their fingerprints and sizes: {"name", "train": {…}, …}.
[[nodiscard]] data::Json facts(const Splits& splits);

}  // namespace skytape::train
