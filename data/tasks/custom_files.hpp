// Custom data in files: one file, a folder of splits, GLUE's or IMDb's.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "data/custom/records.hpp"
#include "data/files/json.hpp"

namespace skytape::data {

struct PrepareOptions;
struct TaskInfo;
struct TokenChoice;

inline constexpr std::size_t kMaxClasses = 1000;  // more is a file whose columns are swapped

/// All examples, of each split in the order of kSplits.
struct CustomData {
  std::array<std::vector<Record>, 3> splits;
  Json sources = Json::array();
  std::vector<std::string> first_labels;  // of each file whose first row may be a header
  std::string splits_are;  // what dev and test of a benchmark are; empty: the user's own
};

/// Reads `options.from`. DataError with file and row for what is broken: the first ten of them, or
/// with --skip-bad-rows a warning. Other oddities are warnings, too.
[[nodiscard]] CustomData read_custom_data(const TaskInfo& task, const TokenChoice& choice,
                                          const PrepareOptions& options);

}  // namespace skytape::data
