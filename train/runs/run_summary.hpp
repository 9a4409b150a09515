// What a run's folder says about the run, finished or not.
#pragma once

#include <filesystem>

#include "train/formats/table.hpp"

namespace skytape::train {

/// Two columns, what and how much; what the run has not come to yet is missing. DataError if the
/// folder holds no run, or a broken one.
[[nodiscard]] Table run_summary(const std::filesystem::path& folder);

}  // namespace skytape::train
