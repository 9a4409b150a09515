// BERT's tokens: words cut into the longest pieces that a vocabulary holds, from the left. A piece
// that goes on a word is written ##piece; a word that cannot be cut is [UNK].
#pragma once

#include <filesystem>
#include <memory>

#include "data/tokenisers/special_tokens.hpp"

namespace skytape::data {

class ByteStream;
class TokenizerJson;

/// The changes to a text before it is cut. The defaults are those of BERT's uncased models.
struct WordPieceOptions {
  bool lower_case = true;     // capital letters become small ones
  bool strip_accents = true;  // é becomes e
  bool split_cjk = true;      // each Chinese character is a word
};

class WordPiece final : public ListedVocabulary {
 public:
  static constexpr std::string_view kKind = "wordpiece";

  /// `entries` by number. DataError naming `source` unless [PAD],
  /// [UNK], [CLS], [SEP] and [MASK] are among them.
  /// `added`: entries that are found in a text before it is cut into words, besides those five.
  WordPiece(std::vector<std::string> entries, const WordPieceOptions& options,
            const std::string& source, std::vector<SpecialToken> added = {});

  [[nodiscard]] std::string_view kind() const override { return kKind; }
  /// Words apart by blanks, each put together from its pieces.
  [[nodiscard]] std::string text_of(std::span<const std::int32_t> tokens) const override;
  [[nodiscard]] std::int32_t end_of_text() const override { return number_of("[SEP]"); }
  void put(Json& provenance) const override;

 private:
  [[nodiscard]] std::u32string normalised(std::u32string text) const override;
  void append(std::u32string_view part, bool first, const std::string& place,
              std::vector<std::int32_t>& tokens) const override;
  void append_word(std::u32string_view word, std::vector<std::int32_t>& tokens) const;

  WordPieceOptions options_;
  std::int32_t unknown_ = 0;
  std::size_t longest_ = 0;  // bytes of an entry
};

/// Reads a `tokenizer.json`, or a `vocab.txt`, an entry a line. Of the latter a `tokenizer.json`
/// next to it decides how texts are cut, where it has the same entries; else a
/// `tokenizer_config.json` says whether capital letters, accents and Chinese characters are to be
/// kept, and it and other files add tokens (add_tokens). DataError with file and line.
[[nodiscard]] std::shared_ptr<const WordPiece> read_wordpiece(const std::filesystem::path& file);
[[nodiscard]] std::shared_ptr<const WordPiece> read_wordpiece(ByteStream& vocabulary,
                                                              const WordPieceOptions& options,
                                                              const std::string& name);
/// DataError naming the first part that is not supported.
[[nodiscard]] std::shared_ptr<const WordPiece> wordpiece_of(const TokenizerJson& json);
/// The one that put() wrote. DataError or JsonError if it is broken.
[[nodiscard]] std::shared_ptr<const WordPiece> wordpiece_in(const Json& provenance);

}  // namespace skytape::data
