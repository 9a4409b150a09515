#include "train/run/splits.hpp"

#include <fmt/format.h>

#include "data/files/json.hpp"
#include "data/prepare.hpp"
#include "tensor/core/error.hpp"
#include "tensor/core/suggest.hpp"
#include "train/config/settings.hpp"
#include "train/run/class_weights.hpp"

namespace skytape::train {
namespace {

std::string_view token_kind(const data::TaskInfo& task) {
  switch (task.tokens) {
    case data::TokenKind::symbols:
      return "symbols";
    case data::TokenKind::bytes:
      return "bytes";
    case data::TokenKind::pixels:
      break;
  }
  return "pixels";
}

data::Json as_json(const KeyInfo& key, const std::string& value) {
  switch (key.range.kind) {
    case KeyKind::integer:
      return static_cast<std::int64_t>(std::stoll(value));
    case KeyKind::real:
      return number_in<double>(value).value();
    case KeyKind::flag:
      return value == "1";
    case KeyKind::choice:
    case KeyKind::weights:
      break;
  }
  return value;
}

/// Returns the settings that generate the data of this provenance again.
data::PrepareOptions settings_of(const data::TaskInfo& task, const std::filesystem::path& root,
                                 const data::Json& provenance) {
  const std::string made_by = provenance.value("generator", "");
  if (provenance.value("how", "") != "generated" || made_by != task.generator) {
    throw DataError(fmt::format(
        "{}: the run's data are not there, and generated ones would be others: they were {}; "
        "--data FOLDER says where they are",
        (root / task.name).string(),
        made_by.empty() ? "read from files"
                        : fmt::format("made by '{}', not by '{}'", made_by, task.generator)));
  }
  data::PrepareOptions options;
  options.data_seed = provenance.value("data_seed", options.data_seed);
  options.limit = provenance.value("examples", provenance.value("images", options.limit));
  return options;
}

}  // namespace

void ensure_prepared(const data::TaskInfo& task, const std::filesystem::path& root,
                     const data::Json& provenance, Progress& progress) {
  if (data::is_prepared(task, root)) return;
  const bool again = !task.generator.empty() && provenance.is_object();
  data::PrepareOptions options =
      again ? settings_of(task, root, provenance) : data::PrepareOptions();
  options.progress = [&](std::string_view what, std::int64_t done, std::int64_t total) {
    progress.at(what, done, total);
  };
  options.warn = [&](std::string_view text) { progress.line(fmt::format("warning: {}", text)); };
  if (!task.generator.empty()) {
    progress.line(fmt::format("{} is not in {}: generating it, once", task.name, root.string()));
  }
  data::prepare(task, root, options);
}

Splits open_splits(const RunConfig& config, Progress& progress) {
  ensure_prepared(*config.task, config.data_root, {}, progress);
  const auto open = [&](std::string_view split) {
    return data::open(*config.task, config.data_root, split, config.dev_rule);
  };
  return {open("train"), open("dev"), open("test")};
}

RunConfig config_for(const RunConfig& config, const data::Dataset& train) {
  return with_vocabulary(config, data::try_parse_json(train.provenance()));
}

nn::ModelConfig model_for(const RunConfig& config, const data::Dataset& train) {
  nn::ModelConfig model = config.model;
  model.classes = train.classes();
  if (model.classes < 2 && model.objective == nn::Objective::classify) {
    throw UsageError(
        fmt::format("{}: its examples have no labels to learn; skytape pretrain --task {} "
                    "learns from them",
                    config.task->name, config.task->name));
  }
  if (model.objective == nn::Objective::classify) {
    model.class_weights = class_weights(config.class_weights, train);
  }
  return model;
}

data::Json model_facts(const RunConfig& config, const data::Dataset& train) {
  const data::TaskInfo& task = *config.task;
  const nn::ModelConfig& model = config.model;
  const data::Json provenance = data::try_parse_json(train.provenance());
  const auto of_data = [&](const char* key, auto otherwise) {
    return provenance.is_object() ? provenance.value(key, otherwise) : otherwise;
  };
  const std::vector<std::string> names(task.labels.begin(), task.labels.end());
  data::Json facts = {{"tokens", of_data("tokens", std::string(token_kind(task)))},
                      {"token_offset", train.token_offset()},
                      {"labels", of_data("labels", names)},
                      {"nominal_length", model.nominal_length},
                      {"attention", model.attention},
                      {"sequences", model.sequences},
                      {"gelu", "exact: x * (1 + erf(x / sqrt(2))) / 2"},
                      {"layer_norm_epsilon", model.norm_epsilon}};
  for (const KeyInfo& key : recipe_keys()) {
    if (key.category != Category::encoder && key.category != Category::model) continue;
    const Setting* const s = find_setting(config.settings, key.key);
    if (s != nullptr) facts[s->key] = as_json(key, s->value);
  }
  facts["head_width"] = model.head_width;  // also where it follows from the width
  return facts;
}

data::Json facts(const Splits& splits) {
  const auto of = [](const data::Dataset& split) -> data::Json {
    return {{"examples", split.size()}, {"fingerprint", split.fingerprint()}};
  };
  return {{"name", splits.train.name()},
          {"train", of(splits.train)},
          {"dev", of(splits.dev)},
          {"test", of(splits.test)}};
}

}  // namespace skytape::train
