#include "train/config/settings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <sstream>

#include "attention/registry.hpp"
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

/// The place of `text` among the key's names.
int parse_choice(const KeyInfo& key, const std::string& text) {
  std::istringstream names{std::string(key.choices)};
  int place = 0;
  for (std::string name; std::getline(names, name, '|'); ++place) {
    if (name == text) return place;
  }
  throw UsageError(fmt::format("{}: expected {}, got '{}'", key.key, key.choices, text));
}

template <class T> T parse_number(const KeyInfo& key, const std::string& text) {
  T value{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  const auto number = static_cast<double>(value);
  if (error != std::errc{} || stop != end || !(number >= key.low && number <= key.high)) {
    throw UsageError(
        fmt::format("{}: expected {}, got '{}' ({})", key.key, range_of(key), text, key.meaning));
  }
  return value;
}

/// Checks a value against its key's range. UsageError.
void check_value(const KeyInfo& key, const std::string& text) {
  if (key.kind == KeyKind::integer) {
    (void)parse_number<std::int64_t>(key, text);
  } else if (key.kind == KeyKind::real) {
    (void)parse_number<double>(key, text);
  } else {
    const std::string range = "|" + range_of(key) + "|";
    if (text.find('|') != text.npos || range.find("|" + text + "|") == range.npos) {
      throw UsageError(
          fmt::format("{}: expected {}, got '{}' ({})", key.key, range_of(key), text, key.meaning));
    }
  }
}

/// The settings of a run while they are put together.
class Resolver {
 public:
  explicit Resolver(const Choices& choices)
      : task_(data::find_task(choices.task)), method_(attention::find(choices.attention)) {
    for (const Setting& s : recipe_settings(choices.recipe, task_.name, method_.name)) {
      recipe_[s.key] = s;
    }
    recipe_.try_emplace("max_length", Setting{"max_length", std::to_string(task_.max_length),
                                              "task " + std::string(task_.name)});
    for (const Choice& choice : choices.values) choose(choice);
    rescale("warmup", "steps", 2);
    rescale("length_hold", user_.contains("length_warmup") ? "length_warmup" : "steps", 0);
    rescale("length_warmup", "steps", 0);
    shorten_pretraining_warmup();
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
    ENSURE(fallback.has_value(), "recipes: no value for ", key, " of task ", task_.name);
    return {key, *fallback, "default of " + method_.name};
  }

  void choose(const Choice& choice) {
    auto [key, value] = in_todays_spelling(choice.key, choice.value);
    // `skyformer.features` and `features` are one key.
    if (key.starts_with(method_.name + ".") && is_shared(key.substr(method_.name.size() + 1)) &&
        method_.has_option(key.substr(method_.name.size() + 1))) {
      key = key.substr(method_.name.size() + 1);
    }
    require_known(key);
    const auto [place, fresh] = user_.try_emplace(key, Setting{key, value, choice.said_by});
    if (!fresh) {
      throw UsageError(fmt::format("{} is set twice: {} by {}, {} by {}", key, place->second.value,
                                   place->second.origin, value, choice.said_by));
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
    if (const std::string_view same = key_called(key); !same.empty()) {
      throw UsageError(
          fmt::format("unknown key '{}' (did you mean '{}'? known: {})", key, same, listed(known)));
    }
    throw UsageError(unknown_name("key", key, known));
  }

  /// Where the user set `of` alone, `which` keeps its share of it, `least` at least.
  void rescale(const char* which, const char* of, std::int64_t least) {
    const auto chosen = user_.find(of);
    if (chosen == user_.end() || user_.contains(which)) return;
    const KeyInfo& key = *find_key(of);
    const auto steps = parse_number<std::int64_t>(key, chosen->second.value);
    const auto full = parse_number<std::int64_t>(key, recipe_.at(of).value);
    Setting& warmup = recipe_.at(which);
    const auto before = parse_number<std::int64_t>(*find_key(which), warmup.value);
    if (steps == full || before == 0) return;
    const auto scaled = static_cast<std::int64_t>(
        static_cast<double>(before) * static_cast<double>(steps) / static_cast<double>(full) + 0.5);
    warmup.origin = fmt::format("{} of {} steps, scaled to {}", before, full, steps);
    warmup.value = std::to_string(std::max(least, scaled));
  }

  /// Where the user set pretrain_steps alone, warming up takes a tenth of them at most.
  void shorten_pretraining_warmup() {
    const auto chosen = user_.find("pretrain_steps");
    if (chosen == user_.end() || user_.contains("pretrain_warmup")) return;
    const auto steps =
        parse_number<std::int64_t>(*find_key("pretrain_steps"), chosen->second.value);
    Setting& warmup = recipe_.at("pretrain_warmup");
    const std::int64_t tenth = std::max<std::int64_t>(2, steps / 10);
    const auto before = parse_number<std::int64_t>(*find_key("pretrain_warmup"), warmup.value);
    if (steps == 0 || before <= tenth) return;
    warmup.origin = fmt::format("{} steps, scaled to a tenth of {}", before, steps);
    warmup.value = std::to_string(tenth);
  }

  const data::TaskInfo& task_;
  const attention::Spec& method_;
  std::map<std::string, Setting> recipe_, user_;
};

}  // namespace

bool is_shared(std::string_view key) {
  return std::find(std::begin(kShared), std::end(kShared), key) != std::end(kShared);
}

std::pair<std::string, std::string> in_todays_spelling(const std::string& key,
                                                       const std::string& value) {
  const std::size_t dot = key.find('.');
  if (dot == key.npos) return {key, value};
  for (const attention::Spec& spec : attention::registry()) {
    if (spec.name != key.substr(0, dot)) continue;
    const auto [option, text] =
        attention::in_todays_spelling(spec.options, key.substr(dot + 1), value);
    return {spec.name + "." + option, text};
  }
  return {key, value};
}

std::vector<Setting> effective_settings(const Choices& choices) {
  return Resolver(choices).settings();
}

const Setting* Values::find(std::string_view key) const {
  for (const Setting& s : settings_) {
    if (s.key == key) return &s;
  }
  return nullptr;
}

std::string Values::text(std::string_view key, std::string fallback) const {
  const KeyInfo& info = *find_key(key);
  const Setting* s = find(key);
  if (s == nullptr && fallback.empty()) fallback = info.before;
  if (s == nullptr && !fallback.empty()) return fallback;
  if (s == nullptr) throw DataError(fmt::format("configuration: no value for {}", key));
  check_value(info, s->value);
  return s->value;
}

int Values::place(std::string_view key) const { return parse_choice(*find_key(key), text(key)); }

std::int64_t Values::integer(std::string_view key) const {
  return parse_number<std::int64_t>(*find_key(key), text(key));
}

double Values::real(std::string_view key) const {
  return parse_number<double>(*find_key(key), text(key));
}

}  // namespace skytape::train
