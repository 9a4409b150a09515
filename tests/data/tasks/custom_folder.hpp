// A folder of custom data in the making, and what preparing it says.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tests/data/synthetic.hpp"

namespace skytape::data::synthetic {

/// The messages of preparing a file or folder: its warnings, or the error.
struct Said {
  std::string error, warnings;
};

struct CustomFolder {
  Folder folder;
  const TaskInfo& task = find_task("tsv");

  [[nodiscard]] Said prepare(const std::filesystem::path& from, PrepareOptions options = {}) const {
    Said said;
    options.from = from;
    options.force = true;
    options.warn = [&](std::string_view text) { said.warnings += std::string(text) + "\n"; };
    said.error = error_of([&] { data::prepare(task, folder.path(), options); });
    return said;
  }
  [[nodiscard]] Dataset split(const char* name) const { return open(task, folder.path(), name); }
  [[nodiscard]] std::string provenance() const { return describe(task, folder.path()).provenance; }
  [[nodiscard]] std::vector<std::string> texts(const char* name) const {
    std::vector<std::string> all;
    const Dataset data = split(name);
    for (std::int64_t i = 0; i < data.size(); ++i) {
      all.emplace_back(data.tokens(i).begin(), data.tokens(i).end());
    }
    return all;
  }
};

/// `count` rows of two labels in turn, the text made of the row's number.
inline std::string rows(int count) {
  std::string lines;
  for (int i = 0; i < count; ++i) {
    lines += std::string(i % 4 ? "ham" : "spam") + "\ttext " + std::to_string(i) + "\n";
  }
  return lines;
}

}  // namespace skytape::data::synthetic
