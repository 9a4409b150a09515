// Options of a method: plain struct fields with a name, a meaning and a legal range.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace skytape::attention {

/// Values as the user spelled them: key -> text ("gamma" -> "0.1").
using OptionValues = std::map<std::string, std::string>;

/// One field of a Config struct. The list of them is written once per method and serves parsing,
/// `skytape info`, recipes and tests.
struct Option {
  std::string key;
  std::variant<std::int64_t*, double*, bool*, std::string*> value;
  std::string meaning;
  double low = 0, high = 0;               // legal range of a number, both ends included
  std::vector<std::string> choices;       // legal values of a string; empty: any text
  std::vector<std::string> idle_by = {};  // options whose values leave this one without effect

  static Option integer(std::string key, std::int64_t& field, double low, double high,
                        std::string meaning);
  static Option real(std::string key, double& field, double low, double high, std::string meaning);
  static Option flag(std::string key, bool& field, std::string meaning);
  static Option choice(std::string key, std::string& field, std::vector<std::string> choices,
                       std::string meaning);
  static Option list(std::string key, std::string& field, std::string meaning);  ///< see parse_list

  /// Returns the option, which the values of the options `by` leave without effect if `idle`. Of
  /// several calls the first one that says so counts.
  [[nodiscard]] Option idle_if(bool idle, std::vector<std::string> by) &&;

  [[nodiscard]] std::string text() const;   ///< current value as text
  [[nodiscard]] std::string range() const;  ///< "1..4096", "official|per_matrix", "0|1"
};

/// The same field as `skytape info`, the README and the goldens see it: text only.
struct OptionInfo {
  std::string key, default_text, range, meaning;
};
[[nodiscard]] std::vector<OptionInfo> describe(const std::vector<Option>& options);

/// Returns why the option `key` changes nothing, given the others' current values: "logits is
/// factorised" with `method` and a dot in front. Empty if it does something.
[[nodiscard]] std::string idle_because(const std::string& method,
                                       const std::vector<Option>& options, std::string_view key);

/// "64:128" -> {64, 128}; empty text -> {}. Throws UsageError naming `key` unless every entry is a
/// positive whole number.
[[nodiscard]] std::vector<std::int64_t> parse_list(const std::string& key, const std::string& text);

/// Sets the fields named in `values`. Throws UsageError on an unknown key (suggesting the nearest),
/// text that is no number, or a value out of range; `method` names the owner in the message.
void assign(const std::string& method, const std::vector<Option>& options,
            const OptionValues& values);

}  // namespace skytape::attention
