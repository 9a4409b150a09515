// BERT's tokens: words cut into the longest pieces that a vocabulary holds, from the left. A piece
// that goes on a word is written ##piece; a word that cannot be cut is [UNK].
#pragma once

#include <filesystem>
#include <memory>
#include <unordered_map>

#include "data/tokenisers/special_tokens.hpp"
#include "data/tokenisers/vocabulary.hpp"

namespace skytape::data {

class ByteStream;
class TokenizerJson;

/// What happens to a text before it is cut. The defaults are those of BERT's uncased models.
struct WordPieceOptions {
  bool lower_case = true;     // capital letters become small ones
  bool strip_accents = true;  // é becomes e
  bool split_cjk = true;      // each Chinese character is a word
};

class WordPiece final : public Vocabulary {
 public:
  static constexpr std::string_view kKind = "wordpiece";

  /// `entries` by number; of equal ones the last counts. DataError naming `source` unless [PAD],
  /// [UNK], [CLS], [SEP] and [MASK] are among them.
  /// `added`: entries that are found in a text before it is cut into words, beside those five.
  WordPiece(std::vector<std::string> entries, const WordPieceOptions& options,
            const std::string& source, std::vector<SpecialToken> added = {});

  [[nodiscard]] std::string_view kind() const override { return kKind; }
  [[nodiscard]] std::int64_t size() const override {
    return static_cast<std::int64_t>(entries_.size());
  }
  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text,
                                                 const std::string& place) const override;
  [[nodiscard]] std::string entry(std::int32_t token) const override;
  /// Words apart by blanks, each put together from its pieces.
  [[nodiscard]] std::string text_of(std::span<const std::int32_t> tokens) const override;
  [[nodiscard]] std::int32_t end_of_text() const override { return number_of("[SEP]"); }
  void put(Json& provenance) const override;

  /// Number of an entry; -1: there is none.
  [[nodiscard]] std::int32_t number_of(const std::string& entry) const;

 private:
  void append_plain(std::string_view text, const std::string& place,
                    std::vector<std::int32_t>& tokens) const;
  void append_word(std::u32string_view word, std::vector<std::int32_t>& tokens) const;

  std::vector<std::string> entries_;
  WordPieceOptions options_;
  std::unordered_map<std::string, std::int32_t> numbers_;
  std::vector<SpecialToken> added_;
  SpecialTokens special_, words_;  // words_: sought in the normalised text
  std::int32_t unknown_ = 0;
  std::size_t longest_ = 0;  // bytes of an entry
};

/// Reads a `vocab.txt`, an entry a line. A `tokenizer_config.json` beside it says whether capital
/// letters, accents and Chinese characters are to be kept; it and other files add tokens
/// (add_tokens). Or a `tokenizer.json`. DataError with file and line.
[[nodiscard]] std::shared_ptr<const WordPiece> read_wordpiece(const std::filesystem::path& file);
[[nodiscard]] std::shared_ptr<const WordPiece> read_wordpiece(ByteStream& vocabulary,
                                                              const WordPieceOptions& options,
                                                              const std::string& name);
/// DataError naming the first part that is not supported.
[[nodiscard]] std::shared_ptr<const WordPiece> wordpiece_of(const TokenizerJson& json);
/// The one that put() wrote. DataError or JsonError if it is broken.
[[nodiscard]] std::shared_ptr<const WordPiece> wordpiece_in(const Json& provenance);

}  // namespace skytape::data
