// A trained model rebuilt from its run folder or from a file of weights, and the data it knows.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "data/cache/dataset.hpp"
#include "data/files/json.hpp"
#include "nn/model.hpp"
#include "train/config/run_config.hpp"

namespace skytape::train {

struct SavedModel {
  RunConfig config;
  std::filesystem::path file;  // the weights
  std::int64_t step = -1;      // at which they were saved; -1: the file does not say
  std::unique_ptr<nn::Model> model;
  data::Json provenance;  // of the data: labels, vocabulary, columns; null: nobody says
  /// Fingerprints of the run's splits; empty for weights that are of no run.
  std::map<std::string, std::string, std::less<>> fingerprints;
};

/// The model of a run folder: `checkpoint` best or last; best falls back to last where selection
/// keeps no best. DataError if the folder holds no run, or config.json and weights are of two.
[[nodiscard]] SavedModel load_run(const std::filesystem::path& folder,
                                  const std::string& checkpoint, Device device);

/// The model of a safetensors file: the one whose configuration is saved in it, or, in a file of
/// another program, as the papers' PyTorch model, the one that `choices` describe. UsageError for a
/// choice that differs from the saved configuration, DataError naming the first tensor that does
/// not fit.
[[nodiscard]] SavedModel load_file(const std::filesystem::path& file, const Choices& choices);

/// Split `split` of the model's task in its data root. For the model of a run it must be the one
/// that the run was trained on. Nothing is ever generated. DataError if the data are not there,
/// are others (both fingerprints named), have other labels or another vocabulary, or another number
/// of classes than the model.
[[nodiscard]] data::Dataset open_split(const SavedModel& saved, std::string_view split);

}  // namespace skytape::train
