#include "train/run/saved_model.hpp"

#include <fmt/format.h>

#include "data/files/json.hpp"
#include "data/prepare.hpp"
#include "tensor/core/error.hpp"
#include "tensor/core/suggest.hpp"
#include "tensor/gemm/precision.hpp"
#include "train/config/resume.hpp"
#include "train/formats/json_file.hpp"
#include "train/formats/safetensors.hpp"
#include "train/run/checkpoint.hpp"
#include "train/run/earlier.hpp"
#include "train/run/run_folder.hpp"

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

void refuse_pretraining(const data::Json& config, const std::filesystem::path& place) {
  if (!is_pretraining(config)) return;
  throw DataError(fmt::format(
      "{}: a pre-training, which predicts hidden tokens and knows no classes; train --init {} "
      "starts a run from it",
      place.string(), place.string()));
}

/// Reads the path and the fingerprints of the run's data.
void read_data_facts(SavedModel& saved, const data::Json& json, const std::filesystem::path& file) {
  try {
    saved.config.data_root = json.at("data_root").get<std::string>();
    for (const char* split : data::kSplits) {
      saved.fingerprints[split] = json.at("data").at(split).at("fingerprint").get<std::string>();
    }
  } catch (const data::JsonError&) {
    throw DataError(
        fmt::format("{}: does not say what data the run was trained on (data_root, fingerprints)",
                    file.string()));
  }
}

}  // namespace

SavedModel load_run(const std::filesystem::path& folder, const std::string& checkpoint,
                    Device device) {
  if (checkpoint != "best" && checkpoint != "last") {
    throw UsageError(unknown_name("checkpoint", checkpoint, {"best", "last"}));
  }
  SavedModel saved;
  const std::filesystem::path config = config_file(folder);
  const data::Json json = read_config(folder);
  refuse_pretraining(json, folder);
  saved.config = moved_to(device, config_from_json(json, config.string()));
  read_data_facts(saved, json, config);
  saved.file = folder / (checkpoint + ".safetensors");
  if (checkpoint == "best" && saved.config.select == Select::last) {
    saved.file = last_file(folder);
  }
  const SafetensorsFile weights = read_weights(saved.file);
  saved.step = facts_of_this_run(weights, saved.file, json).state.step;
  saved.provenance = data::member(json, "data_provenance");
  build(saved, weights);
  return saved;
}

SavedModel load_file(const std::filesystem::path& file, const Choices& choices) {
  SavedModel saved;
  const SafetensorsFile weights = read_weights(file);
  const auto facts = weights.metadata.find("skytape.config");
  if (facts == weights.metadata.end()) {
    saved.config = resolve(choices);
  } else {
    const data::Json json = json_object_in(facts->second, file.string());
    check_parts(json, file.string());
    refuse_pretraining(json, file);
    saved.provenance = data::member(json, "data_provenance");
    saved.config = of_weights(choices, json, file.string());
  }
  saved.file = file;
  build(saved, weights);
  return saved;
}

data::Dataset open_split(const SavedModel& saved, std::string_view split) {
  const data::TaskInfo& task = *saved.config.task;
  const std::filesystem::path& root = saved.config.data_root;
  const std::string place = (root / task.name).string();
  const std::string run = saved.file.parent_path().string();
  const auto known = saved.fingerprints.find(split);
  const bool of_run = known != saved.fingerprints.end();
  if (of_run && !data::is_prepared(task, root)) {
    throw DataError(
        fmt::format("{}: the data it was trained on are not in {}; --data FOLDER says where they "
                    "are ({} with fingerprint {})",
                    run, place, split, known->second));
  }
  data::Dataset set = data::open(task, root, split, saved.config.dev_rule);
  if (of_run && set.fingerprint() != known->second) {
    throw DataError(
        fmt::format("{}: its {} data have fingerprint {}, those in {} have {}: not what it was "
                    "trained on; --data FOLDER says where that is",
                    run, split, known->second, place, set.fingerprint()));
  }
  refuse_other_meaning(saved.provenance, saved.file.string(),
                       data::try_parse_json(set.provenance()), "the data in " + place, false);
  if (set.classes() != saved.model->config().classes) {
    throw DataError(fmt::format("{}: a model of {} classes, but the data in {} have {}",
                                saved.file.string(), saved.model->config().classes, place,
                                set.classes()));
  }
  return set;
}

}  // namespace skytape::train
