// Pathfinder as files: metadata in either encoding, PNG folders, and the tasks built from them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace skytape::data {

class ByteStream;
class CacheSet;
struct PrepareOptions;
struct TaskInfo;

/// One image as its metadata describes it.
struct PathfinderRow {
  std::string path;  // "imgs/0/sample_17.png", inside the difficulty's folder
  int label = 0;     // 1: the two dots lie on one curve
};

/// Reads `metadata/<k>.npy`: lines of text, as in the benchmark's release, or a NumPy array of
/// strings, as the generator writes. The first bytes decide. DataError with file and row.
[[nodiscard]] std::vector<PathfinderRow> read_pathfinder_metadata(std::span<const uint8_t> bytes,
                                                                  const std::string& name);

/// Names the generator in every cache it made; another output, another version.
inline constexpr std::string_view kPathfinderGenerator = "official Pathfinder algorithm, version 2";

/// Generates 200,000 images, or reads `pathfinder<side>/curv_…/{imgs,metadata}` at any depth of
/// `options.from`. Size and difficulty follow from the task; splits are a seeded 80/10/10.
void build_pathfinder(const TaskInfo& task, const PrepareOptions& options, CacheSet& set);

/// Writes a generated set in the official layout, metadata as text: all of it or nothing.
/// UsageError if the set was read, or the difficulty's folder exists.
void export_pathfinder(const TaskInfo& task, const std::filesystem::path& root,
                       const std::filesystem::path& dir);

}  // namespace skytape::data
