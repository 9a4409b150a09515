// A configuration as config.json stores it, compares it and prints it.
#include <fmt/format.h>

#include "attention/registry.hpp"
#include "data/files/json.hpp"
#include "train/config/run_config.hpp"
#include "train/config/settings.hpp"

namespace skytape::train {

using data::Json;

Json to_json(const RunConfig& config) {
  Json settings = Json::object();
  for (const Setting& s : config.settings) {
    settings[s.key] = {{"value", s.value}, {"origin", s.origin}};
  }
  Json saved = {{"task", config.task->name},     {"attention", config.method->name},
                {"recipe", config.recipe},       {"seed", config.seed},
                {"device", name(config.device)}, {"settings", std::move(settings)}};
  if (config.model.objective == nn::Objective::predict_masked) saved["phase"] = "pretraining";
  if (config.mask_token) saved["mask_token"] = true;
  return saved;
}

std::string first_difference(const Json& saved, const Json& wanted) {
  const auto differs = [](const std::string& key, const Json& there, const Json& here) {
    return fmt::format("{}: {} there, {} here", key,
                       there.is_null() ? "absent" : data::json_text(there),
                       here.is_null() ? "absent" : data::json_text(here));
  };
  for (const char* key : {"task", "attention", "recipe", "seed", "data", "phase", "init"}) {
    const Json& there = data::member(saved, key);
    const Json& here = data::member(wanted, key);
    if (there == here) continue;
    if (key != std::string_view("data") || !there.is_object() || !here.is_object()) {
      return differs(key, there, here);
    }
    for (const char* part : {"name", "train", "dev", "test"}) {  // the first, not a page of them
      const Json &one = data::member(there, part), &other = data::member(here, part);
      const bool split = one.is_object() && other.is_object();
      if (one == other) continue;
      return differs(fmt::format("data, {}", part), split ? data::member(one, "fingerprint") : one,
                     split ? data::member(other, "fingerprint") : other);
    }
    return differs(key, there, here);
  }
  const std::vector<Setting> there = saved_settings(saved), here = saved_settings(wanted);
  const auto value = [](const std::vector<Setting>& settings, const std::string& key) -> Json {
    if (const Setting* const found = find_setting(settings, key)) return found->value;
    const KeyInfo* const info = find_key(key);  // saved before the key existed
    return info == nullptr || info->standard.empty() ? Json() : Json(info->standard);
  };
  for (const auto* side : {&here, &there}) {
    for (const Setting& s : *side) {
      if (value(there, s.key) != value(here, s.key)) {
        return differs(s.key, value(there, s.key), value(here, s.key));
      }
    }
  }
  return {};
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
