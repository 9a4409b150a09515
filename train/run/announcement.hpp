// The lines that a run prints before its first step.
#pragma once

#include <string>
#include <vector>

namespace skytape::train {

struct OpenRun;

/// Returns advice for a run whose threads share the cores with other programs, whose load is given:
/// OpenMP's threads spin while they wait. Empty if there are enough cores for all, or if the
/// environment says how to wait.
[[nodiscard]] std::string other_load_text(int threads, int cores, double load);

/// Returns the lines to print before a run: task, method and device; what is trained for how long,
/// in which parts, into which folder; which part of the data is not read, how the sequences grow,
/// and what else runs here.
[[nodiscard]] std::vector<std::string> announcement(const OpenRun& run);

}  // namespace skytape::train
