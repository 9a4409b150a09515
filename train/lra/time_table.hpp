// Time to accuracy of finished runs, method by method.
#pragma once

#include "train/formats/table.hpp"
#include "train/lra/lra_table.hpp"

namespace skytape::train {

/// A row per run that noted it: seconds, steps and real tokens of training until a dev evaluation was above the
/// trivial baseline, above the papers' best cell, and at its own best, and what its tested weights
/// reach. Empty where none did.
[[nodiscard]] Table time_table(const std::vector<FinishedRun>& runs);

}  // namespace skytape::train
