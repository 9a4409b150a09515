// A trained model rebuilt from its run folder or from a file of weights.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "nn/model.hpp"
#include "train/config/run_config.hpp"

namespace skytape::train {

struct SavedModel {
  RunConfig config;
  std::filesystem::path file;  // the weights
  std::int64_t step = -1;      // at which they were saved; -1: the file does not say
  std::unique_ptr<nn::Model> model;
};

/// The model of a run folder: `checkpoint` best or last; best falls back to last where selection
/// keeps no best. DataError if the folder holds no run.
[[nodiscard]] SavedModel load_run(const std::filesystem::path& folder,
                                  const std::string& checkpoint, Device device);

/// The model that `config` describes with the weights of a safetensors file, which may come from
/// the papers' PyTorch model. DataError names the first tensor that does not fit.
[[nodiscard]] SavedModel load_file(const std::filesystem::path& file, const RunConfig& config);

}  // namespace skytape::train
