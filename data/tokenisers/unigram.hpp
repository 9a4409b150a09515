// SentencePiece's Unigram tokens as Hugging Face's tokenizer.json holds them: of all ways to cut a
// text into pieces of the vocabulary, the one whose pieces are the most probable together (Kudo
// 2018). A blank is a character (▁) as any other.
#pragma once

#include <memory>

#include "data/files/json.hpp"
#include "data/tokenisers/special_tokens.hpp"
#include "data/unicode/normaliser.hpp"

namespace skytape::data {

class TokenizerJson;

/// The places where a ▁ is put in front of a text that has none there.
enum class BlankInFront { always, first, never };  // first: not behind an added token or a blank

/// The parts that a tokeniser is made of.
struct UnigramParts {
  std::vector<std::string> entries;  // by number, added tokens among them
  /// "normalizer" and "pre_tokenizer" as tokenizer.json has them, and of its "model" "unk_id",
  /// "byte_fallback" and, in the order of the entries, "scores".
  Json made_of;
  std::vector<SpecialToken> added = {};
};

class Unigram final : public ListedVocabulary {
 public:
  static constexpr std::string_view kKind = "unigram";

  /// DataError naming `source` and the part that is broken or not supported.
  Unigram(UnigramParts parts, const std::string& source);

  [[nodiscard]] std::string_view kind() const override { return kKind; }
  [[nodiscard]] std::string text_of(std::span<const std::int32_t> tokens) const override;
  /// </s>, or [SEP].
  [[nodiscard]] std::int32_t end_of_text() const override;
  void put(Json& provenance) const override;

 private:
  /// The cuts of a normalised text before pieces are sought.
  struct Cuts {
    bool at_spaces = false;  // white space is no part of a text, it ends a part
    bool blanks = false;     // blanks become ▁
    bool at_blanks = false;  // a part begins at each ▁
    BlankInFront in_front = BlankInFront::never;
  };
  void read_cuts(const Json& pre_tokenizer, const std::string& source);
  /// The parts of a normalised text. `first`: it is the beginning of the whole text.
  [[nodiscard]] std::vector<std::u32string> parts_of(std::u32string_view text, bool first) const;
  /// The most probable pieces of a part.
  void append_pieces(std::u32string_view part, const std::string& place,
                     std::vector<std::int32_t>& tokens) const;
  void append_unknown(const std::string& text, const std::string& place,
                      std::vector<std::int32_t>& tokens) const;
  [[nodiscard]] std::u32string normalised(std::u32string text) const override {
    return normaliser_(std::move(text));
  }
  void append(std::u32string_view part, bool first, const std::string& place,
              std::vector<std::int32_t>& tokens) const override;

  Json made_of_;  // UnigramParts
  Normaliser normaliser_;
  Cuts cuts_;
  std::vector<double> scores_;  // log probabilities of the pieces
  double unknown_score_ = 0;
  std::int32_t unknown_ = -1;        // -1: there is none
  std::vector<std::int32_t> bytes_;  // [256] where a character that is no piece becomes its bytes
  std::size_t longest_ = 0;          // characters of a piece
};

/// DataError naming the first part of a tokenizer.json that is not supported.
[[nodiscard]] std::shared_ptr<const Unigram> unigram_of(const TokenizerJson& json);
/// The one that put() wrote. DataError or JsonError if it is broken.
[[nodiscard]] std::shared_ptr<const Unigram> unigram_in(const Json& provenance);

}  // namespace skytape::data
