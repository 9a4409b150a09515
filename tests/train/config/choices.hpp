// Builds a user's choices for a run, in few words.
#pragma once

#include <algorithm>
#include <cstddef>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/support/doctest.hpp"
#include "train/config/run_config.hpp"
#include "train/config/settings.hpp"

namespace skytape::test {

using train::Choices, train::RunConfig, train::Setting;

/// key=value key=value, as after --set.
inline std::vector<Setting> sets(const std::string& text) {
  std::vector<Setting> values;
  std::istringstream in(text);
  for (std::string one; in >> one;) {
    const std::size_t sign = one.find('=');
    values.push_back({one.substr(0, sign), one.substr(sign + 1), "--set"});
  }
  return values;
}

inline Choices choices(std::vector<Setting> values = {}, std::string_view task = "listops",
                       std::string_view attention = "skyformer") {
  Choices c;
  c.task = task;
  c.attention = attention;
  c.settings = std::move(values);
  return c;
}

/// The same with the papers' model, whose values stay.
inline Choices of_papers(std::vector<Setting> values = {},
                         std::string_view attention = "skyformer") {
  Choices c = choices(std::move(values), "listops", attention);
  c.recipe = "skyformer";
  return c;
}

/// Returns the setting of that key; there has to be one.
inline const Setting& setting(const RunConfig& config, const std::string& key) {
  const auto found = std::find_if(config.settings.begin(), config.settings.end(),
                                  [&](const Setting& s) { return s.key == key; });
  const bool is_there = found != config.settings.end();
  REQUIRE(is_there);
  return *found;
}

}  // namespace skytape::test
