// The results of a folder of runs as one archive, for machines that may go away at any moment.
#pragma once

#include <filesystem>

namespace skytape::train {

/// Writes config.json, result.json and metrics.jsonl of every finished run directly below `runs`
/// into a .tar.gz, whole or not at all. Weights are not among them. Error if it cannot be written,
/// or if this program was built without libarchive.
void pack_results(const std::filesystem::path& runs, const std::filesystem::path& archive);

/// UsageError if there is a file of that name that pack_results() did not write: it would replace
/// it.
void refuse_other_file(const std::filesystem::path& archive);

/// Makes the folders of the archive's runs below `runs`; leaves those alone that hold a file of a
/// run. Returns how many it made. DataError if the archive is broken.
int unpack_results(const std::filesystem::path& archive, const std::filesystem::path& runs);

}  // namespace skytape::train
