// The settings of a run as text: recipe, task row, method row and what the user chose, in this order.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "train/config/recipes.hpp"
#include "train/config/run_config.hpp"

namespace skytape::train {

/// Whether a recipe's key is an option of the method: `features` stands for `<method>.features`.
[[nodiscard]] bool is_shared(std::string_view key);

/// A key and its value as they are spelled today: `skyformer.constant_init` ->
/// `skyformer.detach_start`. Keys of no known method come back as they are.
[[nodiscard]] std::pair<std::string, std::string> in_todays_spelling(const std::string& key,
                                                                     const std::string& value);

/// Effective values in the order of the keys, then the method's options in theirs. UsageError as
/// resolve() says.
[[nodiscard]] std::vector<Setting> effective_settings(const Choices& choices);

/// Reads values out of a settings list, each checked against its key's range. UsageError; DataError
/// where a value is missing.
class Values {
 public:
  explicit Values(const std::vector<Setting>& settings) : settings_(settings) {}
  [[nodiscard]] const Setting* find(std::string_view key) const;  ///< nullptr: it is not there
  [[nodiscard]] std::string text(std::string_view key, std::string fallback = {}) const;
  template <class T> [[nodiscard]] T choice(std::string_view key) const {
    return static_cast<T>(place(key));
  }
  [[nodiscard]] std::int64_t integer(std::string_view key) const;
  [[nodiscard]] double real(std::string_view key) const;
  [[nodiscard]] bool flag(std::string_view key) const { return text(key, "0") == "1"; }

 private:
  /// Of the value among the names that its key knows: enumerations have their order.
  [[nodiscard]] int place(std::string_view key) const;

  const std::vector<Setting>& settings_;
};

}  // namespace skytape::train
