#include "train/config/resume.hpp"

#include <fmt/format.h>

#include "attention/spec.hpp"
#include "data/files/json.hpp"
#include "tensor/core/error.hpp"
#include "train/config/settings.hpp"

namespace skytape::train {
namespace {

/// The saved configuration under the names and the seed that are said.
data::Json under_said_names(data::Json saved, const Choices& choices,
                            const std::set<std::string>& said) {
  if (said.contains("--task")) saved["task"] = choices.task;
  if (said.contains("--attention")) saved["attention"] = choices.attention;
  if (said.contains("--recipe")) saved["recipe"] = find_recipe(choices.recipe).name;
  if (said.contains("--seed")) saved["seed"] = choices.seed;
  return saved;
}

/// UsageError if the two are of different runs; data and first weights are not the user's to say.
void refuse_another(const data::Json& saved, data::Json wanted, const std::string& file) {
  for (const char* key : {"data", "init"}) {
    if (saved.contains(key)) wanted[key] = data::member(saved, key);
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
  if (!said.contains("--seed")) choices.seed = config.seed;
  // On the saved device, where this machine has it: other bits come from another.
  const std::string device = saved.value("device", "");
  if (!said.contains("--device") && (device == "cpu" || (device == "cuda" && cuda_available()))) {
    choices.device = device == "cpu" ? Device::cpu : Device::cuda;
  }
  // What was saved is the recipe now, which judges what is said.
  const RunConfig now = resolve(choices, recipe_of_run(saved, file));
  config.task = now.task;
  config.method = now.method;
  config.seed = now.seed;
  for (const Setting& setting : now.settings) {
    if (setting.origin.starts_with("--")) put(setting, config.settings);
  }
  refuse_another(saved, to_json(config), file);
  config.device = choices.device;
  config.data_root = said.contains("--data") ? choices.data_root.string()
                                             : saved.value("data_root", choices.data_root.string());
  return config;
}

}  // namespace skytape::train
