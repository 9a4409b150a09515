// result.json and what a finished run says.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "train/checkpoint.hpp"
#include "train/evaluate.hpp"
#include "train/run_config.hpp"

namespace skytape::train {

/// How a run ended.
struct Outcome {
  RunState state;
  std::int64_t selected_step = 0;  // whose weights were tested
  std::int64_t peak_bytes = 0;     // of the allocator, while training
  std::int64_t parameters = 0;
  Evaluation dev, test;  // whole splits
};

/// The object of result.json; `full_config` is that of config.json.
[[nodiscard]] nlohmann::json result_json(const RunConfig& config, const nlohmann::json& full_config,
                                         const Outcome& outcome);

/// The figures on stdout; `task` is what the data are called.
void print_result(const RunConfig& config, std::string_view task, const Outcome& outcome,
                  const std::filesystem::path& file);

/// A warning when the test accuracy is not above what needs no attention; else empty.
[[nodiscard]] std::string floor_warning(const RunConfig& config, const Evaluation& test);

}  // namespace skytape::train
