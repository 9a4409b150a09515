#include "train/config/resume.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "attention/spec.hpp"
#include "data/files/json.hpp"
#include "tensor/core/error.hpp"

namespace skytape::train {
namespace {

/// Whether the user chose the setting, by either of its names: `features`, `skyformer.features`.
bool chooses(const Choices& choices, const std::string& key) {
  return std::any_of(choices.values.begin(), choices.values.end(), [&](const Choice& choice) {
    return choice.key == key || choice.key == choices.attention + "." + key;
  });
}

bool is_users(const Setting& setting) { return setting.origin.starts_with("--"); }

/// The saved settings; those that the user chose now as `now` has them.
std::vector<Setting> merged(std::vector<Setting> settings, const std::vector<Setting>& now,
                            const std::set<std::string>& left_open) {
  for (const Setting& setting : now) {
    if (!is_users(setting) || left_open.contains(setting.key)) continue;
    const auto same = std::find_if(settings.begin(), settings.end(),
                                   [&](const Setting& s) { return s.key == setting.key; });
    if (same == settings.end()) {
      settings.push_back(setting);
    } else {
      *same = setting;
    }
  }
  return settings;
}

/// The saved configuration under the names and the seed that are said.
data::Json under_said_names(data::Json saved, const Choices& choices,
                            const std::set<std::string>& said) {
  if (said.contains("--task")) saved["task"] = choices.task;
  if (said.contains("--attention")) saved["attention"] = choices.attention;
  if (said.contains("--recipe")) saved["recipe"] = choices.recipe;
  if (said.contains("--seed")) saved["seed"] = choices.seed;
  return saved;
}

/// UsageError if the two are of different runs; data and first weights are not the user's to say.
void refuse_another(const data::Json& saved, data::Json wanted, const std::string& file) {
  for (const char* key : {"data", "init"}) {
    if (saved.contains(key)) wanted[key] = saved[key];
  }
  if (const std::string difference = first_difference(saved, wanted); !difference.empty()) {
    throw UsageError(
        fmt::format("{}: --resume refuses another configuration: {}", file, difference));
  }
}

}  // namespace

RunConfig resumed(Choices choices, const std::set<std::string>& said, const data::Json& saved,
                  const std::string& file) {
  refuse_another(saved, under_said_names(saved, choices, said), file);
  RunConfig config = config_from_json(saved, file);
  if (!said.contains("--task")) choices.task = config.task->name;
  if (!said.contains("--attention")) choices.attention = config.method->name;
  if (!said.contains("--recipe")) choices.recipe = config.recipe;
  if (!said.contains("--seed")) choices.seed = config.seed;
  std::set<std::string> left_open;
  for (const Setting& setting : config.settings) {
    if (!is_users(setting) || chooses(choices, setting.key)) continue;
    left_open.insert(setting.key);
    choices.values.push_back({setting.key, setting.value, setting.origin});
  }
  // On the saved device, where this machine has it: other bits come from another.
  const std::string device = saved.value("device", "");
  if (!said.contains("--device") && (device == "cpu" || (device == "cuda" && cuda_available()))) {
    choices.device = device == "cpu" ? Device::cpu : Device::cuda;
  }
  const RunConfig now = resolve(choices);  // judges what is said
  config.recipe = now.recipe;
  config.task = now.task;
  config.method = now.method;
  config.seed = now.seed;
  config.settings = merged(std::move(config.settings), now.settings, left_open);
  refuse_another(saved, to_json(config), file);
  config.device = choices.device;
  config.data_root = said.contains("--data") ? choices.data_root.string()
                                             : saved.value("data_root", choices.data_root.string());
  return config;
}

}  // namespace skytape::train
