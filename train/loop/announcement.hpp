// What a run says before its first step.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "train/config/run_config.hpp"
#include "train/ranks/ranks.hpp"

namespace skytape::train {

/// How the ranks add up gradients: "ordered" or "fast".
[[nodiscard]] const char* adds_up(const RunConfig& config, const Ranks& ranks);

/// Lines for people: task, method and device; what is trained for how long, in which parts, into
/// which folder; what of the data is not read, and how the sequences grow. `parameters`: numbers.
[[nodiscard]] std::vector<std::string> announcement(const RunConfig& config,
                                                    const data::Dataset& train,
                                                    std::int64_t parameters,
                                                    const std::filesystem::path& folder,
                                                    const Ranks& ranks);

}  // namespace skytape::train
