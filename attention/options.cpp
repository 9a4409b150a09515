#include "attention/options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "tensor/core/error.hpp"
#include "tensor/core/suggest.hpp"

namespace skytape::attention {
namespace {

[[noreturn]] void refuse(const std::string& method, const Option& option, const std::string& text) {
  throw UsageError(join(method, ".", option.key, ": expected ", option.range(), ", got '", text,
                        "' (", option.meaning, ")"));
}

std::string short_number(double value) { return fmt::format("{:.10g}", value); }

struct Assign {
  const std::string& method;
  const Option& option;
  const std::string& text;

  template <class T> void number(T* field) const {
    const std::optional<T> value = number_in<T>(text);
    if (!value || !(*value >= option.low && *value <= option.high)) refuse(method, option, text);
    *field = *value;
  }
  void operator()(std::int64_t* field) const { number(field); }
  void operator()(double* field) const { number(field); }
  void operator()(bool* field) const {
    if (text != "0" && text != "1" && text != "true" && text != "false") {
      refuse(method, option, text);
    }
    *field = text == "1" || text == "true";
  }
  void operator()(std::string* field) const {
    if (option.choices.empty()) {
      (void)parse_list(method + "." + option.key, text);
    } else if (std::ranges::find(option.choices, text) == option.choices.end()) {
      refuse(method, option, text);
    }
    *field = text;
  }
};

}  // namespace

Option Option::integer(std::string key, std::int64_t& field, double low, double high,
                       std::string meaning) {
  return {std::move(key), &field, std::move(meaning), low, high, {}};
}
Option Option::real(std::string key, double& field, double low, double high, std::string meaning) {
  return {std::move(key), &field, std::move(meaning), low, high, {}};
}
Option Option::flag(std::string key, bool& field, std::string meaning) {
  return {std::move(key), &field, std::move(meaning), 0, 1, {}};
}
Option Option::choice(std::string key, std::string& field, std::vector<std::string> choices,
                      std::string meaning) {
  return {std::move(key), &field, std::move(meaning), 0, 0, std::move(choices)};
}
Option Option::list(std::string key, std::string& field, std::string meaning) {
  return {std::move(key), &field, std::move(meaning), 0, 0, {}};
}

Option Option::idle_if(bool idle, std::vector<std::string> by) && {
  if (idle && idle_by.empty()) idle_by = std::move(by);
  return std::move(*this);
}

std::string Option::text() const {
  if (const auto* i = std::get_if<std::int64_t*>(&value)) return std::to_string(**i);
  if (const auto* x = std::get_if<double*>(&value)) return short_number(**x);
  if (const auto* b = std::get_if<bool*>(&value)) return **b ? "1" : "0";
  return *std::get<std::string*>(value);
}

std::string Option::range() const {
  if (std::holds_alternative<bool*>(value)) return "0|1";
  if (!choices.empty()) return fmt::format("{}", fmt::join(choices, "|"));
  if (std::holds_alternative<std::string*>(value)) return "numbers joined by ':'";
  return short_number(low) + ".." + short_number(high);
}

std::vector<OptionInfo> describe(const std::vector<Option>& options) {
  std::vector<OptionInfo> infos;
  for (const Option& option : options) {
    infos.push_back({option.key, option.text(), option.range(), option.meaning});
  }
  return infos;
}

std::string idle_because(const std::string& method, const std::vector<Option>& options,
                         std::string_view key) {
  const auto named = [&](std::string_view name) -> const Option& {
    const auto found = std::ranges::find(options, name, &Option::key);
    ENSURE(found != options.end(), method, ": no option is called '", name, "'");
    return *found;
  };
  std::vector<std::string> reasons;
  for (const std::string& other : named(key).idle_by) {
    reasons.push_back(fmt::format("{}.{} is {}", method, other, named(other).text()));
  }
  return fmt::format("{}", fmt::join(reasons, " and "));
}

std::vector<std::int64_t> parse_list(const std::string& key, const std::string& text) {
  std::vector<std::int64_t> numbers;
  std::istringstream entries(text);
  const bool unended = text.ends_with(':');  // getline would not see the empty entry behind it
  for (std::string entry; std::getline(entries, entry, ':');) {
    const auto number = number_in<std::int64_t>(entry);
    if (!number || *number < 1 || unended) {
      throw UsageError(
          join(key, ": expected positive whole numbers joined by ':', got '", text, "'"));
    }
    numbers.push_back(*number);
  }
  return numbers;
}

void assign(const std::string& method, const std::vector<Option>& options,
            const OptionValues& values) {
  for (const auto& [key, text] : values) {
    const Option& option = find_named("option of " + method, key, options, &Option::key);
    std::visit(Assign{method, option, text}, option.value);
  }
}

}  // namespace skytape::attention
