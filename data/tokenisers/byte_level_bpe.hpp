// GPT-2's and RoBERTa's tokens: a text is cut at words, numbers, marks and spaces; the bytes of
// each cut are joined pair by pair, the pair that was learnt first going first.
#pragma once

#include <filesystem>
#include <memory>
#include <unordered_map>
#include <unordered_set>

#include "data/tokenisers/special_tokens.hpp"

namespace skytape::data {

class ByteStream;
class TokenizerJson;

/// The parts that a tokeniser is made of.
struct ByteLevelBpeParts {
  std::vector<std::string> entries;  // by number; each byte is a printable character, a blank Ġ
  std::vector<std::string> merges;   // "left right", the first learnt first
  bool space_in_front = false;       // a text is read as if a blank stood before it
  /// Entries that are found in a text before it is cut, besides <s>, <pad>, </s>, <unk>, <mask> and
  /// <|endoftext|>.
  std::vector<SpecialToken> added = {};
};

class ByteLevelBpe final : public ListedVocabulary {
 public:
  static constexpr std::string_view kKind = "bpe";

  /// DataError naming `source` if a byte or a part of a merge is no entry.
  ByteLevelBpe(ByteLevelBpeParts parts, const std::string& source);

  [[nodiscard]] std::string_view kind() const override { return kKind; }
  /// The bytes that the tokens stand for.
  [[nodiscard]] std::string text_of(std::span<const std::int32_t> tokens) const override;
  /// </s>, or GPT-2's <|endoftext|>.
  [[nodiscard]] std::int32_t end_of_text() const override {
    const std::int32_t end = number_of("</s>");
    return end >= 0 ? end : number_of("<|endoftext|>");
  }
  void put(Json& provenance) const override;

 private:
  struct Merge {
    std::int32_t rank, result;  // the smaller the rank, the earlier
  };
  void add_merge(std::size_t rank, const std::string& source);
  [[nodiscard]] const Merge* merge_of(std::int32_t left, std::int32_t right) const;
  void append_word(std::string_view bytes, std::vector<std::int32_t>& tokens) const;

  void append(std::u32string_view part, bool first, const std::string& place,
              std::vector<std::int32_t>& tokens) const override;

  std::vector<std::string> learnt_;  // merges, the first one first
  bool space_in_front_;
  std::unordered_map<std::uint64_t, Merge> merges_;      // by both parts
  std::vector<std::int32_t> bytes_;                      // [256] numbers of the single bytes
  std::unordered_set<std::int32_t> numbers_of_special_;  // that are found before a text is cut
};

/// Reads `vocab.json` and `merges.txt` of a folder; a `tokenizer_config.json` next to them says
/// whether a blank is put in front, and other files add tokens (add_tokens). A `tokenizer.json`
/// decides in their place, where it has the same entries and merges, or they are not there.
/// DataError with file and line.
[[nodiscard]] std::shared_ptr<const ByteLevelBpe> read_byte_level_bpe(
    const std::filesystem::path& folder);
/// DataError naming the first part that is not supported.
[[nodiscard]] std::shared_ptr<const ByteLevelBpe> byte_level_bpe_of(const TokenizerJson& json);
/// The merges of a merges.txt. DataError with file and line.
[[nodiscard]] std::vector<std::string> read_merges(ByteStream& merges, const std::string& name);
/// The one that put() wrote. DataError or JsonError if it is broken.
[[nodiscard]] std::shared_ptr<const ByteLevelBpe> byte_level_bpe_in(const Json& provenance);

}  // namespace skytape::data
