// Small synthetic data for the tests of data/.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "data/batches.hpp"
#include "data/cache/cache.hpp"
#include "data/cache/dataset.hpp"
#include "data/prepare.hpp"
#include "tensor/core/error.hpp"
#include "tests/support/doctest.hpp"

template <> struct doctest::StringMaker<skytape::data::Cursor> {
  static String convert(const skytape::data::Cursor& at) {
    return String("epoch ") + toString(at.epoch) + " position " + toString(at.position);
  }
};

namespace skytape::data::synthetic {

/// A folder that is gone at the end of the test.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "skytape-test-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  /// Writes a file, with the folders above it.
  std::filesystem::path write(const std::string& name, std::string_view bytes) const {
    const auto where = path_ / name;
    std::filesystem::create_directories(where.parent_path());
    std::ofstream(where, std::ios::binary) << bytes;
    return where;
  }

 private:
  std::filesystem::path path_;
};

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Text of the error that `call` throws, "" if none; `E` is the expected type.
template <class E = Error, class F> std::string error_of(F&& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  }
  return "";
}

/// An expression of ListOps for every example, a hundred in all, prepared below `root`.
inline const TaskInfo& small_listops(const std::filesystem::path& root, int64_t examples = 100,
                                     int threads = 1, uint64_t seed = 1) {
  const TaskInfo& task = find_task("listops");
  PrepareOptions options;
  options.limit = examples;
  options.threads = threads;
  options.data_seed = seed;
  prepare(task, root, options);
  return task;
}

/// A split with the given sequences; example i has label i % 2.
inline Dataset split_of(const Folder& folder, const std::vector<std::vector<uint8_t>>& sequences,
                        int token_offset = 0) {
  CacheSet set("synthetic", folder.path() / "synthetic", 1, token_offset);
  set.classes = 2;
  for (size_t i = 0; i < sequences.size(); ++i) {
    set.split("train").add(static_cast<int32_t>(i % 2), sequences[i]);
  }
  set.commit();
  return Dataset(CacheFile::open(cache_path(folder.path() / "synthetic", "train")));
}

/// Sequences of the given lengths; token j of sequence i is 1 + (7 i + j) % 15.
inline std::vector<std::vector<uint8_t>> sequences_of(const std::vector<int>& lengths) {
  std::vector<std::vector<uint8_t>> sequences;
  for (size_t i = 0; i < lengths.size(); ++i) {
    std::vector<uint8_t> tokens;
    for (int j = 0; j < lengths[i]; ++j)
      tokens.push_back(static_cast<uint8_t>(1 + (7 * i + j) % 15));
    sequences.push_back(tokens);
  }
  return sequences;
}

}  // namespace skytape::data::synthetic
