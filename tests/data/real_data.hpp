// Real data sets, which the repository does not hold, for tests of known answers.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace skytape::data::synthetic {

/// The folder `part` of $SKYTAPE_DATA: imdb (aclImdb_v1.tar.gz), cifar10, listops, aan-substitute
/// or reference (Pathfinder). Without it, says that the case is skipped.
[[nodiscard]] std::optional<std::filesystem::path> real_data_or_skip(const std::string& part);

}  // namespace skytape::data::synthetic
