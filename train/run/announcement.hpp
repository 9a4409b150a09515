// What a run says before its first step.
#pragma once

#include <string>
#include <vector>

namespace skytape::train {

struct OpenRun;

/// What helps where a run's threads share the cores with other programs, whose load is given:
/// OpenMP's spin while they wait. Empty where there is room for all, and where the environment says
/// how to wait.
[[nodiscard]] std::string other_load_text(int threads, int cores, double load);

/// Lines for people: task, method and device; what is trained for how long, in which parts, into
/// which folder; what of the data is not read, how the sequences grow, and what else runs here.
[[nodiscard]] std::vector<std::string> announcement(const OpenRun& run);

}  // namespace skytape::train
