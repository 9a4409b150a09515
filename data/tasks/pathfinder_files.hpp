// Pathfinder as files: metadata in either encoding, PNG folders, and the tasks built from them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace skytape::data {

/// One image as its metadata describes it.
struct PathfinderRow {
  std::string path;  // "imgs/0/sample_17.png", inside the difficulty's folder
  int label = 0;     // 1: the two dots lie on one curve
};

/// Reads `metadata/<k>.npy`: lines of text, as in the benchmark's release, or a NumPy array of
/// strings, as the generator writes. The first bytes decide. DataError with file and row.
[[nodiscard]] std::vector<PathfinderRow> read_pathfinder_metadata(std::span<const uint8_t> bytes,
                                                                  const std::string& name);

}  // namespace skytape::data
