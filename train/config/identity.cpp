#include "train/config/identity.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <span>
#include <string_view>

#include "attention/registry.hpp"
#include "data/files/printable.hpp"
#include "data/files/source.hpp"
#include "tensor/core/suggest.hpp"
#include "train/config/keys.hpp"
#include "train/config/settings.hpp"

namespace skytape::train {
namespace {

using data::Json;

constexpr std::string_view kDecidesNothing = "checkpoint_every";
constexpr std::string_view kOfData = "data, ";  // in front of what its data are

/// The value of a key; numbers, and lists of them, in one spelling.
std::string one_spelling(const std::string& key, const std::string& value) {
  const KeyInfo* const info = find_key(key);
  const bool option = info == nullptr && key.find('.') != key.npos;  // of a method
  const bool numbers = info != nullptr &&
                       (info->range.kind == KeyKind::integer || info->range.kind == KeyKind::real ||
                        info->range.kind == KeyKind::weights);
  if (!option && !numbers) return value;
  std::vector<std::string> parts;
  for (const std::string_view part : data::split(value, ',')) {
    const auto number = number_in<double>(part);
    parts.push_back(number ? fmt::format("{}", *number) : std::string(part));
  }
  return listed(parts, ",");
}

/// A text as it is, and any other value as JSON.
std::string text_of(const Json& value) {
  return value.is_string() ? value.get<std::string>() : data::json_text(value);
}

/// Returns the defaults of keys and of the method's options, which hold where nothing is said.
Identity defaults_of(const std::string& attention) {
  Identity defaults;
  for (const KeyInfo& key : recipe_keys()) {
    if (!key.standard.empty()) defaults[std::string(key.key)] = key.standard;
  }
  for (const attention::Spec& spec : attention::registry()) {
    if (spec.name != attention) continue;
    for (const attention::OptionInfo& option : spec.options) {
      if (!is_shared(option.key)) defaults[spec.name + "." + option.key] = option.default_text;
    }
  }
  return defaults;
}

/// Returns whether the settings decide the weights that a run starts from: those of its own first
/// phase.
bool starts_from_its_own(const Json& config, const Identity& settings) {
  const auto steps = settings.find("pretrain_steps");
  const bool second = data::member(config, "phase").is_null();
  return second && steps != settings.end() && steps->second != "0";
}

std::string shown(const Identity& identity, const std::string& key) {
  const auto found = identity.find(key);
  return found == identity.end() ? "absent" : data::printable(found->second, 200);
}

/// Returns whether the key names a split of the data, whose value is its fingerprint.
bool is_of_split(std::string_view key) {
  return key.starts_with(kOfData) && key != std::string(kOfData) + "name";
}

/// The keys in which two differ, settings in the order of their names.
std::vector<std::string> keys_that_differ(const Identity& there, const Identity& here) {
  std::vector<std::string> keys;
  for (const Identity* side : {&there, &here}) {
    for (const auto& [key, value] : *side) {
      const auto other_side = side == &there ? &here : &there;
      const auto other = other_side->find(key);
      const bool same = other != other_side->end() &&
                        one_spelling(key, other->second) == one_spelling(key, value);
      if (!same && (side == &there || other == other_side->end())) keys.push_back(key);
    }
  }
  std::sort(keys.begin(), keys.end());
  return keys;
}

}  // namespace

Identity identity_of(const Json& config) {
  const Json& attention = data::member(config, "attention");
  Identity identity = defaults_of(attention.is_string() ? attention.get<std::string>() : "");
  if (!data::member(config, "settings").is_null()) {
    for (const Setting& setting : saved_settings(config)) identity[setting.key] = setting.value;
  }
  identity.erase(std::string(kDecidesNothing));
  for (const char* key : {"task", "attention", "phase", "init"}) {
    const Json& value = data::member(config, key);
    if (value.is_null()) continue;
    if (key == std::string_view("init") && starts_from_its_own(config, identity)) continue;
    identity[key] = text_of(value);
  }
  const Json& sets = data::member(config, "data");
  for (const auto& [key, value] : sets.items()) {
    const Json& fingerprint = data::member(value, "fingerprint");
    identity[std::string(kOfData) + key] = text_of(fingerprint.is_null() ? value : fingerprint);
  }
  return identity;
}

Identity without_data(Identity identity) {
  std::erase_if(identity, [](const auto& entry) { return entry.first.starts_with(kOfData); });
  return identity;
}

std::string differences(const Identity& there, const Identity& here) {
  constexpr std::size_t kMostShown = 20;  // with their values
  const std::vector<std::string> keys = keys_that_differ(there, here);
  const std::size_t count = std::min(keys.size(), kMostShown);
  std::vector<std::string> parts, splits;  // of the splits the fingerprints differ
  for (const std::string& key : std::span(keys).first(count)) {
    if (is_of_split(key)) {
      splits.push_back(key.substr(kOfData.size()));
      continue;
    }
    parts.push_back(fmt::format("{}: {} there, {} here", key, shown(there, key), shown(here, key)));
  }
  if (!splits.empty()) {  // train before others: one fingerprint says that the data are others
    std::ranges::reverse(splits);
    const std::string key = std::string(kOfData) + splits[0];
    const auto rest = std::span(splits).subspan(1);
    parts.push_back(
        fmt::format("{}: fingerprint {} there, {} here{}", key, shown(there, key), shown(here, key),
                    rest.empty() ? ""
                                 : fmt::format("; {} differ{} as well", listed(rest, " and "),
                                               rest.size() == 1 ? "s" : "")));
  }
  if (count < keys.size()) {
    parts.push_back("and of these keys, too: " + listed(std::span(keys).subspan(count)));
  }
  return listed(parts, "; ");
}

std::string differences(const Json& saved, const Json& wanted) {
  const auto with_seed = [](const Json& config) {
    Identity identity = identity_of(config);
    const Json& seed = data::member(config, "seed");
    if (!seed.is_null()) identity["seed"] = text_of(seed);
    return identity;
  };
  return differences(with_seed(saved), with_seed(wanted));
}

std::string settings_of(const Json& config) {
  const std::vector<Setting> settings = saved_settings(config);  // sorted by their keys
  const auto given = [](const Setting& s) { return s.origin.starts_with("--"); };
  // --without-additions makes several settings, which have one name together.
  const auto left_out = [&](const Setting& s) {
    const KeyInfo* const key = find_key(s.key);
    return given(s) && key != nullptr && !key->adds.empty() && s.value == key->standard;
  };
  const auto additions =
      std::ranges::count_if(recipe_keys(), [](const KeyInfo& key) { return !key.adds.empty(); });
  const bool without = std::ranges::count_if(settings, left_out) == additions;
  std::string text = config.value("recipe", "") + (without ? ", without additions" : "");
  for (const Setting& s : settings) {
    if (given(s) && !(without && left_out(s))) text += fmt::format(", {}={}", s.key, s.value);
  }
  return text;
}

std::vector<std::string> distinct_names(const std::vector<Json>& configs) {
  struct Kind {
    Identity identity;
    std::string name;
  };
  std::vector<Kind> kinds;
  std::vector<std::size_t> kind_of;
  for (const Json& config : configs) {
    Identity identity = without_data(identity_of(config));
    std::size_t k = 0;
    while (k < kinds.size() && !keys_that_differ(kinds[k].identity, identity).empty()) ++k;
    if (k == kinds.size()) kinds.push_back({std::move(identity), settings_of(config)});
    kind_of.push_back(k);
  }
  const auto namesakes = [&](const Kind& a, const Kind& b) {
    return &a != &b && a.name == b.name && shown(a.identity, "task") == shown(b.identity, "task") &&
           shown(a.identity, "attention") == shown(b.identity, "attention");
  };
  for (bool alike = true; alike;) {  // until no name says two things
    alike = false;
    std::vector<std::string> names;
    for (const Kind& kind : kinds) {
      std::set<std::string> keys;
      for (const Kind& other : kinds) {
        if (!namesakes(kind, other)) continue;
        for (const std::string& key : keys_that_differ(kind.identity, other.identity)) {
          keys.insert(key);
        }
      }
      names.push_back(kind.name);
      for (const std::string& key : keys) {
        names.back() += fmt::format(", {}={}", key, shown(kind.identity, key));
      }
      alike = alike || !keys.empty();
    }
    for (std::size_t k = 0; k < kinds.size(); ++k) kinds[k].name = names[k];
  }
  std::vector<std::string> of_runs;
  for (const std::size_t kind : kind_of) of_runs.push_back(kinds[kind].name);
  return of_runs;
}

}  // namespace skytape::train
