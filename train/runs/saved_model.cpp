#include "train/runs/saved_model.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "data/files/json.hpp"
#include "tensor/core/error.hpp"
#include "tensor/core/suggest.hpp"
#include "tensor/gemm/precision.hpp"
#include "train/runs/checkpoint.hpp"
#include "train/runs/run_folder.hpp"

namespace skytape::train {
namespace {

/// Builds the model; the head of the file says how many classes there are.
void build(SavedModel& saved, const SafetensorsFile& weights) {
  nn::ModelConfig model = saved.config.model;
  const Tensor* head = weights.find("seq_classifer.mlpblock.2.bias");  // [C]
  if (head != nullptr && head->rank() == 1) model.classes = head->size(0);
  set_precision(saved.config.device, saved.config.precision);
  saved.model =
      std::make_unique<nn::Model>(model, DType::f32, saved.config.device, saved.config.seed);
  load_weights(weights, saved.file, *saved.model);
}

}  // namespace

SavedModel load_run(const std::filesystem::path& folder, const std::string& checkpoint,
                    Device device) {
  if (checkpoint != "best" && checkpoint != "last") {
    throw UsageError(unknown_name("checkpoint", checkpoint, {"best", "last"}));
  }
  if (!std::filesystem::exists(folder / "config.json")) {
    throw DataError(fmt::format("{}: holds no run (no config.json)", folder.string()));
  }
  SavedModel saved;
  const std::filesystem::path config = folder / "config.json";
  const nlohmann::json json = read_json(config);
  if (is_pretraining(json)) {
    throw DataError(fmt::format(
        "{}: a pre-training, which predicts hidden tokens and knows no classes; train --init {} "
        "starts a run from it",
        folder.string(), folder.string()));
  }
  saved.config = config_from_json(json, config.string());
  saved.config.device = device;
  saved.config.data_root = json.value("data_root", "datasets");
  saved.file = folder / (checkpoint + ".safetensors");
  if (checkpoint == "best" && saved.config.select == Select::last) {
    saved.file = folder / "last.safetensors";
  }
  const SafetensorsFile weights = read_safetensors(saved.file);
  const CheckpointFacts facts = read_facts(weights, saved.file);
  const std::string difference = first_difference(facts.config, json);
  if (!difference.empty()) {
    throw DataError(
        fmt::format("{}: a checkpoint of another run: {}", saved.file.string(), difference));
  }
  saved.step = facts.state.step;
  build(saved, weights);
  return saved;
}

SavedModel load_file(const std::filesystem::path& file, const RunConfig& config) {
  SavedModel saved;
  const SafetensorsFile weights = read_safetensors(file);
  saved.config = config;
  const auto facts = weights.metadata.find("skytape.config");
  if (facts != weights.metadata.end()) {  // of own data: what their tokens are
    const nlohmann::json json = data::try_parse_json(facts->second);
    saved.config = with_vocabulary(
        config, json.is_object() ? json.value("data_provenance", nlohmann::json()) : json);
  }
  saved.file = file;
  build(saved, weights);
  return saved;
}

}  // namespace skytape::train
