// Functions that the builders of all tasks share: they find files and record where data came from.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "data/files/digest.hpp"
#include "data/files/json_fwd.hpp"
#include "data/files/source.hpp"
#include "data/prepare.hpp"

namespace skytape::data {

/// Passes a stream through and keeps count and SHA-256 of its bytes.
class HashedStream : public ByteStream {
 public:
  explicit HashedStream(ByteStream& inner) : inner_(inner) {}
  size_t read(std::span<uint8_t> buffer) override;

  /// {"file", "bytes", "sha256"}; reads what is left of the stream.
  [[nodiscard]] Json finish(std::string_view file);

 private:
  ByteStream& inner_;
  Sha256 digest_;
  uint64_t bytes_ = 0;
};

/// Returns that of several sets of file names which `root` holds: the most complete, then the
/// largest, one. For an archive it is the first.
[[nodiscard]] const std::vector<std::string>& find_form(
    const std::filesystem::path& root, const std::vector<std::vector<std::string>>& forms);

/// Reads each of `names` once, from one folder at any depth of `root`; returns the provenance of
/// the files. Names not found are a DataError that lists them, with the official address.
Json read_named_files(
    const TaskInfo& task, const PrepareOptions& options, const std::vector<std::string>& names,
    const std::function<void(std::string_view name, const SourceFile&, ByteStream&)>& read);

/// Names a generated set of another size than the benchmark's, by --limit, and notes the limit.
void call_limited(int64_t limit, CacheSet& set, Json& provenance);

/// Threads to use: `options.threads`, or all cores.
[[nodiscard]] int thread_count(const PrepareOptions& options);

}  // namespace skytape::data
