// A configuration as config.json stores it, what its parts have to be, and how it is printed.
#include <fmt/format.h>

#include "attention/registry.hpp"
#include "data/files/json.hpp"
#include "tensor/core/error.hpp"
#include "train/config/run_config.hpp"
#include "train/config/settings.hpp"
#include "train/formats/json_file.hpp"

namespace skytape::train {
namespace {

using data::Json;
using Is = JsonKind;

constexpr JsonPart kParts[] = {
    {"task", Is::text},
    {"attention", Is::text},
    {"recipe", Is::text},
    {"seed", Is::natural},
    {"device", Is::text},
    {"data_root", Is::text},
    {"revision", Is::text},
    {"phase", Is::text},
    {"init", Is::text},
    {"mask_token", Is::flag},
    {"settings", Is::object},
    {"data", Is::object},
    {"data.name", Is::text},
    {"data.train", Is::object},
    {"data.train.examples", Is::natural},
    {"data.train.fingerprint", Is::text},
    {"data.dev", Is::object},
    {"data.dev.examples", Is::natural},
    {"data.dev.fingerprint", Is::text},
    {"data.test", Is::object},
    {"data.test.examples", Is::natural},
    {"data.test.fingerprint", Is::text},
    {"machine", Is::object},
    {"machine.cpu", Is::text},
    {"machine.threads", Is::natural},
    {"model", Is::object},
    {"model.labels", Is::texts},
    {"model.tokens", Is::text},
    {"model.max_length", Is::natural},
    {"pretraining", Is::object},
    {"pretraining.task", Is::text},
    {"pretraining.attention", Is::text},
    {"pretraining.steps", Is::natural},
    {"pretraining.tokens", Is::natural},
    {"pretraining.train_seconds", Is::number},
};
constexpr JsonPart kProvenanceParts[] = {
    {"data_provenance", Is::object},
    {"data_provenance.how", Is::text},
    {"data_provenance.labels", Is::texts},
    {"data_provenance.pairs", Is::flag},
    {"data_provenance.tokens", Is::text},
    {"data_provenance.vocabulary", Is::texts},
    {"data_provenance.sources", Is::list},
    {"data_provenance.generator", Is::text},
    {"data_provenance.data_seed", Is::natural},
    {"data_provenance.examples", Is::natural},
    {"data_provenance.images", Is::natural},
    {"data_provenance.limit", Is::natural},
};
constexpr JsonPart kSettingParts[] = {{"value", Is::text}, {"origin", Is::text}};
constexpr JsonPart kSourceParts[] = {
    {"file", Is::text},          {"format", Is::text},        {"delimiter", Is::text},
    {"columns", Is::object},     {"columns.label", Is::text}, {"columns.text", Is::text},
    {"columns.text2", Is::text},
};

/// Each part of a list or an object by itself.
void check_each(const Json& whole, const std::string& name, std::span<const JsonPart> kinds,
                const std::string& file) {
  for (const auto& [key, part] : whole.items()) {
    const std::string path = name + "." + key;
    if (!part.is_object()) refuse_json_part(file, path, "an object", part);
    train::check_parts(part, kinds, file + ": " + path);
  }
}

/// The two places where the file names its classes.
void check_labels(const Json& config, const std::string& file) {
  const Json& of_model = data::member(config, "model", "labels");
  const Json& of_data = data::member(config, "data_provenance", "labels");
  if (of_model.empty() || of_data.empty() || of_model == of_data) return;
  throw DataError(
      fmt::format("{}: data_provenance.labels is {}, model.labels is {}: expected the "
                  "same, in the order of the classes",
                  file, data::json_text(of_data), data::json_text(of_model)));
}

}  // namespace

Json to_json(const std::vector<Setting>& settings) {
  Json saved = Json::object();
  for (const Setting& s : settings) saved[s.key] = {{"value", s.value}, {"origin", s.origin}};
  return saved;
}

Json to_json(const RunConfig& config) {
  Json saved = {{"task", config.task->name},     {"attention", config.method->name},
                {"recipe", config.recipe},       {"seed", config.seed},
                {"device", name(config.device)}, {"settings", to_json(config.settings)}};
  if (config.model.objective == nn::Objective::predict_masked) saved["phase"] = "pretraining";
  if (config.mask_token) saved["mask_token"] = true;
  return saved;
}

void check_parts(const Json& config, const std::string& file) {
  if (!config.is_object()) {
    throw DataError(fmt::format("{}: not a configuration of skytape: no JSON object", file));
  }
  train::check_parts(config, kParts, file);
  const Json& settings = data::member(config, "settings");
  check_each(settings, "settings", kSettingParts, file);
  for (const auto& [key, setting] : settings.items()) {
    if (!setting.contains("value")) {
      refuse_json_part(file, "settings." + key, "an object with a value", setting);
    }
  }
  const Json& provenance = data::member(config, "data_provenance");
  if (provenance.is_null()) return;  // data that say nothing of where they come from
  train::check_parts(config, kProvenanceParts, file);
  check_each(data::member(provenance, "sources"), "data_provenance.sources", kSourceParts, file);
  check_labels(config, file);
}

std::string to_text(const RunConfig& config) {
  std::string text =
      fmt::format("task {}, attention {}, recipe {}, seed {}, device {}\n", config.task->name,
                  config.method->name, config.recipe, config.seed, name(config.device));
  for (const Setting& s : config.settings) {
    text += fmt::format("  {:<28} {:<16} {}\n", s.key, s.value, s.origin);
  }
  return text;
}

}  // namespace skytape::train
