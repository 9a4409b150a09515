// The files of Hugging Face's tokenisers, as far as several kinds read them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "data/files/json.hpp"
#include "data/tokenisers/special_tokens.hpp"

namespace skytape::data {

inline constexpr std::size_t kLongestEntry = 4096;  // bytes of a line; the longest real one has 256
inline constexpr std::int64_t kMostEntries = 4'000'000;  // of a vocabulary
inline constexpr std::size_t kLargestFile = 256 << 20;   // bytes of a vocabulary

/// A JSON file, gzip'd too. DataError naming it if it is not there, too large, or broken.
[[nodiscard]] Json read_json_file(const std::filesystem::path& path, std::size_t most_bytes);

/// The tokens that the files of a folder add to a vocabulary, or call special: those that
/// `tokenizer_config.json` and `added_tokens.json` number, and of the names in
/// `tokenizer_config.json` and `special_tokens_map.json` those that `entries` has. What has a
/// number behind the last entry becomes one. DataError naming the file for a number that another
/// entry has.
[[nodiscard]] std::vector<SpecialToken> add_tokens(const std::filesystem::path& folder,
                                                   std::vector<std::string>& entries);

/// A truth value in `part` of the file `source`; `otherwise` where it is not said, or null.
/// DataError if it is no truth value.
[[nodiscard]] bool flag_in(const Json& part, const std::string& key, bool otherwise,
                           const std::string& source, const std::string& part_name);

/// `tokenizer_config.json` of a folder; empty if there is none.
class TokeniserConfig {
 public:
  explicit TokeniserConfig(const std::filesystem::path& folder);

  /// A truth value; `otherwise` where it is not said, or null. DataError if it is no truth value.
  [[nodiscard]] bool flag(std::string_view key, bool otherwise) const;
  /// A tokenizer.json next to it says `value` of the same: DataError naming both unless `key` is
  /// not said, has that value, or belongs to a class of tokenisers that reads tokenizer.json alone.
  void require_same(std::string_view key, bool value, const std::string& part) const;
  /// A member must have this value, or be absent or null.
  void require(const char* key, const Json& wanted) const;

 private:
  std::filesystem::path path_;
  Json config_;
};

/// The entries of a vocab.json, {"entry": number, …}, in their order. DataError naming `name`
/// unless the numbers are 0, 1, … each once.
[[nodiscard]] std::vector<std::string> entries_in(const Json& vocabulary, const std::string& name);
/// A tokenizer.json, which today's Transformers save alone: WordPiece as BERT has it, byte-level
/// BPE, or Unigram. Every part that is not supported is named.
class TokenizerJson {
 public:
  /// DataError naming the file if it is not there or broken.
  explicit TokenizerJson(const std::filesystem::path& file);

  [[nodiscard]] const std::filesystem::path& file() const { return file_; }
  /// "WordPiece", "BPE", "Unigram", …
  [[nodiscard]] std::string model_type() const;
  [[nodiscard]] const Json& part(const char* name) const { return member(content_, name); }

  /// The entries, those of added tokens among them, by number.
  [[nodiscard]] std::vector<std::string> entries() const;
  /// Refuses a part that we cannot take: "normalizer: expected BertNormalizer, got …".
  [[noreturn]] void refuse(const std::string& part, const std::string& expected,
                           const Json& got) const;
  void require_model(const char* type) const;
  /// A member of a part must have this value, or be absent or null.
  void require(const char* part, const char* key, const Json& wanted) const;
  /// The post-processor must put these two around a text, and nothing else.
  void require_ends(const SpecialToken& first, const SpecialToken& last) const;
  /// Refuses a list that stands in a separate file, too, and is another there: "vocab.txt: 3 is
  /// 'b', but 'c' in tokenizer.json". It may be longer here.
  void require_same(const std::filesystem::path& other, const std::vector<std::string>& theirs,
                    const std::vector<std::string>& ours) const;

 private:
  std::filesystem::path file_;
  Json content_;
};

/// Adds to `entries` the added tokens of a tokenizer.json, whatever its name, and of the files
/// beside it; numbers in the tokenizer.json win. Returns the tokens. DataError naming the file.
[[nodiscard]] std::vector<SpecialToken> add_tokens(const TokenizerJson& json,
                                                   std::vector<std::string>& entries);

}  // namespace skytape::data
