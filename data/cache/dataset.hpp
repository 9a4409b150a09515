// A split of a task as a read-only view of its memory-mapped cache file.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace skytape::data {

class CacheFile;

/// Examples of one split. Copying is free; examples are read from the page cache when asked for,
/// so memory does not grow with the set. Safe to read from several threads.
class Dataset {
 public:
  explicit Dataset(std::shared_ptr<const CacheFile> file);

  [[nodiscard]] int64_t size() const { return count_; }  // examples
  [[nodiscard]] int64_t classes() const;
  [[nodiscard]] int sequences() const;     // of an example: 1, or 2 (Retrieval)
  [[nodiscard]] int token_offset() const;  // id = stored token + token_offset()
  [[nodiscard]] int token_bytes() const;   // of a stored token: 1, or 2 where there are many
  /// Returns the name for results: the task's name, `retrieval-substitute` where the files are not
  /// the official ones, or with `-limited` behind it where a limit made another number of examples.
  [[nodiscard]] std::string_view name() const;
  /// Returns the origin of the set, as JSON text: generator parameters, seed, source files and
  /// hashes.
  [[nodiscard]] std::string_view provenance() const;
  /// Checksum over tokens and labels of the file, 16 hexadecimal digits.
  [[nodiscard]] std::string fingerprint() const;

  [[nodiscard]] int32_t label(int64_t i) const;
  /// Stored tokens of one sequence, whole: add token_offset() to get ids. Of one byte each, …
  [[nodiscard]] std::span<const uint8_t> tokens(int64_t i, int sequence = 0) const;
  /// … or of two.
  [[nodiscard]] std::span<const uint16_t> wide_tokens(int64_t i, int sequence = 0) const;
  [[nodiscard]] int64_t length(int64_t i, int sequence = 0) const;  // tokens
  [[nodiscard]] int64_t longest() const;  // tokens of the longest sequence
  /// Sequences with more than `most` tokens.
  [[nodiscard]] int64_t longer_than(int64_t most) const;

  /// Examples [begin, begin + count) of this view.
  [[nodiscard]] Dataset slice(int64_t begin, int64_t count) const;

 private:
  [[nodiscard]] std::span<const uint8_t> bytes(int64_t i, int sequence) const;

  std::shared_ptr<const CacheFile> file_;
  int64_t begin_ = 0;
  int64_t count_ = 0;
};

}  // namespace skytape::data
