// The files that Hugging Face's tokenisers lie in, as far as several kinds read them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "data/files/json.hpp"

namespace skytape::data {

inline constexpr std::size_t kLongestEntry = 4096;  // bytes of a line; the longest real one has 256
inline constexpr std::int64_t kMostEntries = 4'000'000;  // of a vocabulary
inline constexpr std::size_t kLargestFile = 256 << 20;   // bytes of a vocabulary

/// A JSON file, gzip'd too. DataError naming it if it is not there, too large, or broken.
[[nodiscard]] Json read_json_file(const std::filesystem::path& path, std::size_t most_bytes);

/// `tokenizer_config.json` of a folder; empty if there is none.
class TokeniserConfig {
 public:
  explicit TokeniserConfig(const std::filesystem::path& folder);

  /// A truth value; `otherwise` where it is not said, or null. DataError if it is no truth value.
  [[nodiscard]] bool flag(std::string_view key, bool otherwise) const;

 private:
  std::filesystem::path path_;
  Json config_;
};

}  // namespace skytape::data
