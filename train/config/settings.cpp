#include "train/config/settings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "attention/registry.hpp"
#include "data/files/json.hpp"
#include "tensor/core/error.hpp"
#include "tensor/core/suggest.hpp"

namespace skytape::train {
namespace {

constexpr std::string_view kShared[] = {"features", "attention_dropout"};

/// Pictures do, and id 0 is a real token of theirs: a black pixel.
bool has_one_length(const data::TaskInfo& task) { return task.tokens == data::TokenKind::pixels; }

/// Why a recipe key changes nothing in a run of this task and method; empty if it does.
std::string no_effect(std::string_view key, const data::TaskInfo& task,
                      const attention::Spec& method) {
  if (is_shared(key) && !method.has_option(key)) {
    return fmt::format("{} has no such option", method.name);
  }
  if (key == "drop_close" && task.closing_symbol < 0) {
    return fmt::format("{} has no closing symbol, as `]` of listops", task.name);
  }
  if (key == "text.dev" && task.held_out == 0) {
    return fmt::format("{} has a dev split of its own", task.name);
  }
  if (key == "mask" && !has_one_length(task)) {
    return fmt::format("both rules agree on {}, where id 0 is padding only", task.name);
  }
  if (key == "group_by_length" && has_one_length(task)) {
    return fmt::format("all sequences of {} have one length", task.name);
  }
  return {};
}

/// The settings of a run while they are put together.
class Resolver {
 public:
  Resolver(const Choices& choices, const Recipe& recipe)
      : name_(recipe.name),
        task_(data::find_task(choices.task)),
        method_(attention::find(choices.attention)) {
    for (const Setting& s : recipe_settings(recipe, task_.name, method_.name)) recipe_[s.key] = s;
    recipe_.try_emplace("max_length", Setting{"max_length", std::to_string(task_.max_length),
                                              "task " + std::string(task_.name)});
    for (const Setting& choice : choices.settings) choose(choice);
    rescale("warmup", "steps", 2);
    rescale("length_hold", user_.contains("length_warmup") ? "length_warmup" : "steps", 0);
    rescale("length_warmup", "steps", 0);
    shorten_pretraining_warmup();
    // Who bounds evaluations wants short ones at the end, too.
    if (const auto few = user_.find("eval_examples"); few != user_.end()) {
      recipe_["final_examples"] = {"final_examples", few->second.value, "as eval_examples"};
    }
  }

  /// Effective values in the order of the keys, then the method's options in theirs.
  [[nodiscard]] std::vector<Setting> settings() const {
    std::vector<Setting> all;
    for (const KeyInfo& key : recipe_keys()) {
      if (!no_effect(key.key, task_, method_).empty()) continue;
      all.push_back(effective(std::string(key.key), std::nullopt));
      check_value(key, all.back().value);
    }
    for (const attention::OptionInfo& option : method_.options) {
      if (is_shared(option.key)) continue;
      all.push_back(effective(method_.name + "." + option.key, option.default_text));
    }
    return all;
  }

 private:
  [[nodiscard]] Setting effective(const std::string& key,
                                  const std::optional<std::string>& fallback) const {
    if (const auto user = user_.find(key); user != user_.end()) return user->second;
    if (const auto row = recipe_.find(key); row != recipe_.end()) return row->second;
    if (!fallback) {
      throw UsageError(
          fmt::format("recipe {}: no {} for {}, which has no default", name_, key, task_.name));
    }
    return {key, *fallback, "default of " + method_.name};
  }

  void choose(const Setting& choice) {
    const std::string key = one_key(choice.key, method_);
    require_known(key);
    const auto [place, fresh] = user_.try_emplace(key, Setting{key, choice.value, choice.origin});
    if (!fresh) {
      throw UsageError(fmt::format("{} is set twice: {} by {}, {} by {}", key, place->second.value,
                                   place->second.origin, choice.value, choice.origin));
    }
  }

  /// UsageError for a key that does not exist or changes nothing in this run.
  void require_known(const std::string& key) const {
    if (const KeyInfo* info = find_key(key)) {
      const std::string reason = no_effect(info->key, task_, method_);
      if (reason.empty()) return;
      throw UsageError(fmt::format("{} has no effect on this run: {}", key, reason));
    }
    std::vector<std::string> known;
    for (const KeyInfo& info : recipe_keys()) known.emplace_back(info.key);
    for (const attention::OptionInfo& option : method_.options) {
      known.push_back(method_.name + "." + option.key);
      if (known.back() == key) return;
    }
    const std::size_t dot = key.find('.');
    for (const attention::Spec& other : attention::registry()) {
      if (dot != key.npos && key.substr(0, dot) == other.name && other.name != method_.name &&
          other.has_option(key.substr(dot + 1))) {
        throw UsageError(
            fmt::format("{} has no effect on this run: its attention is {}", key, method_.name));
      }
    }
    throw UsageError(unknown_key(key, known));
  }

  /// Rescales a number of steps: if the user set `of` alone, `which` keeps its share of it, `least`
  /// at least.
  void rescale(const char* which, const char* of, std::int64_t least) {
    const auto chosen = user_.find(of);
    if (chosen == user_.end() || user_.contains(which)) return;
    if (!recipe_.contains(of) || !recipe_.contains(which)) return;  // nothing to keep a share of
    const KeyInfo& key = *find_key(of);
    const std::int64_t steps = whole_number(key, chosen->second.value);
    const std::int64_t full = whole_number(key, recipe_.at(of).value);
    Setting& warmup = recipe_.at(which);
    const std::int64_t before = whole_number(*find_key(which), warmup.value);
    if (steps == full || before == 0) return;
    const auto scaled = static_cast<std::int64_t>(
        static_cast<double>(before) * static_cast<double>(steps) / static_cast<double>(full) + 0.5);
    warmup.origin = fmt::format("{} of {} steps, scaled to {}", before, full, steps);
    warmup.value = std::to_string(std::max(least, scaled));
  }

  /// Limits warming up to a tenth of the steps, if the user set pretrain_steps alone.
  void shorten_pretraining_warmup() {
    const auto chosen = user_.find("pretrain_steps");
    if (chosen == user_.end() || user_.contains("pretrain_warmup")) return;
    const std::int64_t steps = whole_number(*find_key("pretrain_steps"), chosen->second.value);
    Setting& warmup = recipe_.at("pretrain_warmup");
    const std::int64_t tenth = std::max<std::int64_t>(2, steps / 10);
    const std::int64_t before = whole_number(*find_key("pretrain_warmup"), warmup.value);
    if (steps == 0 || before <= tenth) return;
    warmup.origin = fmt::format("{} steps, scaled to a tenth of {}", before, steps);
    warmup.value = std::to_string(tenth);
  }

  const std::string& name_;  // of the recipe
  const data::TaskInfo& task_;
  const attention::Spec& method_;
  std::map<std::string, Setting> recipe_, user_;
};

}  // namespace

bool is_shared(std::string_view key) {
  return std::find(std::begin(kShared), std::end(kShared), key) != std::end(kShared);
}

std::string one_key(const std::string& key, const attention::Spec& method) {
  if (!key.starts_with(method.name + ".")) return key;
  const std::string option = key.substr(method.name.size() + 1);
  return is_shared(option) && method.has_option(option) ? option : key;
}

std::vector<Setting> effective_settings(const Choices& choices, const Recipe& recipe) {
  return Resolver(choices, recipe).settings();
}

const Setting* find_setting(const std::vector<Setting>& settings, std::string_view key) {
  const auto found = std::find_if(settings.begin(), settings.end(),
                                  [&](const Setting& s) { return s.key == key; });
  return found == settings.end() ? nullptr : &*found;
}

void put(const Setting& setting, std::vector<Setting>& settings) {
  for (Setting& known : settings) {
    if (known.key == setting.key) return void(known = setting);
  }
  settings.push_back(setting);
}

std::string value_of(const std::vector<Setting>& settings, const KeyInfo& key) {
  const Setting* const s = find_setting(settings, key.key);
  if (s == nullptr && key.standard.empty()) {
    throw DataError(fmt::format("configuration: no value for {}", key.key));
  }
  std::string text = s == nullptr ? std::string(key.standard) : s->value;
  check_value(key, text);
  return text;
}

std::string idle_because(const std::vector<Setting>& settings, const KeyInfo& key) {
  if (key.idle.key.empty()) return {};
  const std::string other = value_of(settings, *find_key(key.idle.key));
  return is_among(key.idle.values, other) ? fmt::format("{} is {}", key.idle.key, other) : "";
}

std::vector<Setting> saved_settings(const data::Json& config) {
  std::vector<Setting> settings;
  for (const auto& [key, entry] : config.at("settings").items()) {
    const std::string value = entry.at("value").get<std::string>();
    const std::string origin = entry.value("origin", "");
    if (key == "pooling" && value == "pyramid") {  // what checkpoints call it that were made before
      settings.push_back({"pooling", "mean", origin});
      settings.push_back({"pyramid", "1", origin});
    } else {
      settings.push_back({key, value, origin});
    }
  }
  return settings;
}

}  // namespace skytape::train
