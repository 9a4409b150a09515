// The settings of a run as text: recipe, task row, method row and what the user chose, in this
// order.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "train/config/keys.hpp"
#include "train/config/recipes.hpp"
#include "train/config/run_config.hpp"

namespace skytape::train {

/// Returns whether a recipe's key is an option of the method: `features` stands for
/// `<method>.features`.
[[nodiscard]] bool is_shared(std::string_view key);

/// The one spelling of a key that has two: `skyformer.features` is `features` in a run of
/// skyformer.
[[nodiscard]] std::string one_key(const std::string& key, const attention::Spec& method);

/// Effective values in the order of the keys, then the method's options in theirs. UsageError as
/// resolve() says.
[[nodiscard]] std::vector<Setting> effective_settings(const Choices& choices, const Recipe& recipe);

/// The setting of that key; nullptr: it is not there.
[[nodiscard]] const Setting* find_setting(const std::vector<Setting>& settings,
                                          std::string_view key);

/// Gives the setting of that key its value and origin, or adds it.
void put(const Setting& setting, std::vector<Setting>& settings);

/// A key's value, checked against its range; its default where the settings have none. UsageError;
/// DataError where there is no default either.
[[nodiscard]] std::string value_of(const std::vector<Setting>& settings, const KeyInfo& key);

/// Returns why a key changes nothing, given the others: "ngrams is 0". Empty if it does something.
[[nodiscard]] std::string idle_because(const std::vector<Setting>& settings, const KeyInfo& key);

/// Settings as config.json holds them, each with its value and origin.
[[nodiscard]] data::Json to_json(const std::vector<Setting>& settings);
/// The settings that a config.json holds. JsonError.
[[nodiscard]] std::vector<Setting> saved_settings(const data::Json& config);

}  // namespace skytape::train
