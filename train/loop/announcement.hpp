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

/// What helps where a run's threads share the cores with other programs, whose load is given:
/// OpenMP's spin while they wait. Empty where there is room for all, and where the environment says
/// how to wait.
[[nodiscard]] std::string other_load_text(int threads, int cores, double load);

/// Lines for people: task, method and device; what is trained for how long, in which parts, into
/// which folder; what of the data is not read, how the sequences grow, and what else runs here.
/// `parameters`: numbers.
[[nodiscard]] std::vector<std::string> announcement(const RunConfig& config,
                                                    const data::Dataset& train,
                                                    std::int64_t parameters,
                                                    const std::filesystem::path& folder,
                                                    const Ranks& ranks);

}  // namespace skytape::train
