// Summarises a run from its folder, finished or not.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "data/files/json_fwd.hpp"
#include "train/formats/table.hpp"

namespace skytape::train {

/// Two columns, what and how much; what the run has not come to yet is missing. DataError if the
/// folder holds no run, or a broken one.
[[nodiscard]] Table run_summary(const std::filesystem::path& folder);

/// Steps that the run of a config.json goes to. DataError if it does not say.
[[nodiscard]] std::int64_t planned_steps(const data::Json& config);

/// The run folders directly below `runs` that were trained on the training split of that
/// fingerprint, in the order of their names.
[[nodiscard]] std::vector<std::string> runs_on(const std::filesystem::path& runs,
                                               const std::string& train_fingerprint);

}  // namespace skytape::train
