// Rows of tables as tests spell them: "| words | 1.5 |", however wide the columns are.
#pragma once

#include <regex>
#include <sstream>
#include <string>

#include "train/formats/table.hpp"

namespace skytape::test {

/// A text with bars between and around the cells of its tables' rows. Cells have no two spaces in a
/// row, and other lines have none.
[[nodiscard]] inline std::string in_bars(const std::string& text) {
  std::string barred;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::string cells = std::regex_replace(line, std::regex(" {2,}"), " | ");
    barred += cells == line ? line + "\n" : "| " + cells + " |\n";
  }
  return barred;
}
[[nodiscard]] inline std::string in_bars(const train::Table& table) {
  return in_bars(train::to_text(table));
}

}  // namespace skytape::test
