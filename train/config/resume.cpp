#include "train/config/resume.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "attention/registry.hpp"
#include "data/files/json.hpp"
#include "tensor/core/error.hpp"
#include "train/config/identity.hpp"
#include "train/config/settings.hpp"

namespace skytape::train {
namespace {

using data::Json;

[[noreturn]] void refuse(const std::string& file, const std::string& by,
                         const std::string& differences) {
  throw UsageError(
      fmt::format("{}: --resume refuses another configuration: {}{}", file, by, differences));
}

/// The saved configuration under the names and the seed that are said.
Json under_said_names(Json saved, const Choices& choices, const std::set<std::string>& said) {
  if (said.contains("--task")) saved["task"] = choices.task;
  if (said.contains("--attention")) saved["attention"] = choices.attention;
  if (said.contains("--seed")) saved["seed"] = choices.seed;
  return saved;
}

/// UsageError if the two are of different runs; data and first weights cannot be changed on
/// resume.
void refuse_another(const Json& saved, Json wanted, const std::string& file) {
  for (const char* key : {"data", "init"}) {
    if (saved.contains(key)) wanted[key] = data::member(saved, key);
  }
  const std::string found = differences(saved, wanted);
  if (!found.empty()) refuse(file, "", found);
}

/// UsageError if the recipe that is said now would have started another run, together with all that
/// the user set then. A precision that is automatic is compared as that: it may be another device
/// now.
void refuse_other_recipe(const Json& saved, Choices choices, const std::string& file) {
  const Recipe recipe = find_recipe(choices.recipe);
  const attention::Spec& method = attention::find(choices.attention);
  std::vector<Setting> there = saved_settings(saved);
  for (Setting& setting : there) {
    unsettle_precision(setting);
    const bool said =
        std::any_of(choices.values.begin(), choices.values.end(),
                    [&](const Choice& c) { return one_key(c.key, method) == setting.key; });
    if (setting.origin.starts_with("--") && !said) {
      choices.values.push_back({setting.key, setting.value, setting.origin});
    }
  }
  std::vector<Setting> here = resolve(choices, recipe).settings;
  for (Setting& setting : here) unsettle_precision(setting);
  const auto with = [&](const std::vector<Setting>& settings) {
    Json config = saved;
    config["settings"] = to_json(settings);
    return config;
  };
  const std::string found = differences(with(there), with(here));
  if (!found.empty()) refuse(file, fmt::format("by recipe {}: ", recipe.name), found);
}

}  // namespace

RunConfig resumed(Choices choices, const std::set<std::string>& said, const Json& saved,
                  const std::string& file) {
  refuse_another(saved, under_said_names(saved, choices, said), file);
  RunConfig config = config_from_json(saved, file);
  if (!said.contains("--task")) choices.task = config.task->name;
  if (!said.contains("--attention")) choices.attention = config.method->name;
  // On the saved device, where this machine has it: other bits come from another.
  const std::string device = saved.value("device", "");
  if (!said.contains("--device") && (device == "cpu" || (device == "cuda" && cuda_available()))) {
    choices.device = device == "cpu" ? Device::cpu : Device::cuda;
  }
  if (said.contains("--recipe")) refuse_other_recipe(saved, choices, file);
  // The saved settings are the recipe now, against which the user's choices are judged.
  const RunConfig now = resolve(choices, recipe_of_run(saved, file));
  for (const Setting& setting : now.settings) {
    if (setting.origin.starts_with("--")) put(setting, config.settings);
  }
  Json wanted = saved;
  wanted["settings"] = to_json(config.settings);
  refuse_another(saved, wanted, file);
  config = config_from_json(wanted, file);  // some given settings keep the run's identity
  config.device = choices.device;
  config.data_root = said.contains("--data") ? choices.data_root.string()
                                             : saved.value("data_root", choices.data_root.string());
  return config;
}

}  // namespace skytape::train
