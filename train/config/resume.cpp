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

/// The user's choices beside a saved configuration, its file, and the flag that names the file.
struct Asked {
  const Choices& choices;
  const std::string& file;
  const char* flag;
};

[[noreturn]] void refuse(const Asked& asked, const std::string& by,
                         const std::string& differences) {
  throw UsageError(fmt::format("{}: {} refuses another configuration: {}{}", asked.file, asked.flag,
                               by, differences));
}

/// The saved configuration under the names and the seed that are given.
Json under_given_names(Json saved, const Asked& asked) {
  if (asked.choices.given.contains("--task")) saved["task"] = asked.choices.task;
  if (asked.choices.given.contains("--attention")) saved["attention"] = asked.choices.attention;
  if (asked.choices.given.contains("--seed")) saved["seed"] = asked.choices.seed;
  return saved;
}

/// UsageError if the two are of different runs; data and first weights cannot be changed on
/// resume.
void refuse_another(const Json& saved, Json wanted, const Asked& asked) {
  for (const char* key : {"data", "init"}) {
    if (saved.contains(key)) wanted[key] = data::member(saved, key);
  }
  const std::string found = differences(saved, wanted);
  if (!found.empty()) refuse(asked, "", found);
}

/// UsageError if the recipe that is given now would have started another run, together with all
/// that the user set then. A precision that is automatic is compared as that: it may be another
/// device now.
void refuse_other_recipe(const Json& saved, Choices choices, const Asked& asked) {
  const Recipe recipe = find_recipe(choices.recipe);
  const attention::Spec& method = attention::find(choices.attention);
  std::vector<Setting> there = saved_settings(saved);
  for (Setting& setting : there) {
    unsettle_precision(setting);
    const bool chosen =
        std::any_of(choices.settings.begin(), choices.settings.end(),
                    [&](const Setting& c) { return one_key(c.key, method) == setting.key; });
    if (setting.origin.starts_with("--") && !chosen) {
      choices.settings.push_back({setting.key, setting.value, asked.flag});
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
  if (!found.empty()) refuse(asked, fmt::format("by recipe {}: ", recipe.name), found);
}

/// The saved configuration with the choices in its place that leave its identity alone.
RunConfig saved_or_chosen(const Json& saved, const Asked& asked) {
  refuse_another(saved, under_given_names(saved, asked), asked);
  RunConfig config = config_from_json(saved, asked.file);
  Choices choices = asked.choices;
  if (!asked.choices.given.contains("--task")) choices.task = config.task->name;
  if (!asked.choices.given.contains("--attention")) choices.attention = config.method->name;
  if (asked.choices.given.contains("--recipe")) refuse_other_recipe(saved, choices, asked);
  // The saved settings are the recipe now, against which the user's choices are judged.
  const RunConfig now = resolve(choices, recipe_of_run(saved, asked.file));
  for (const Setting& setting : now.settings) {
    if (setting.origin.starts_with("--")) put(setting, config.settings);
  }
  Json wanted = saved;
  wanted["settings"] = to_json(config.settings);
  refuse_another(saved, wanted, asked);
  return config_from_json(wanted, asked.file);
}

}  // namespace

RunConfig resumed(Choices choices, const Json& saved, const std::string& file) {
  // On the saved device, where this machine has it: other bits come from another.
  const std::string device = saved.value("device", "");
  if (!choices.given.contains("--device") &&
      (device == "cpu" || (device == "cuda" && cuda_available()))) {
    choices.device = device == "cpu" ? Device::cpu : Device::cuda;
  }
  RunConfig config = saved_or_chosen(saved, {choices, file, "--resume"});
  config.device = choices.device;
  config.data_root = choices.given.contains("--data")
                         ? choices.data_root.string()
                         : saved.value("data_root", choices.data_root.string());
  return config;
}

RunConfig of_weights(const Choices& choices, const Json& saved, const std::string& file) {
  RunConfig config = moved_to(choices.device, saved_or_chosen(saved, {choices, file, "--weights"}));
  config.data_root = choices.data_root;
  return config;
}

}  // namespace skytape::train
