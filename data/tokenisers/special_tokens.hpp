// Tokens with a meaning of their own, such as [MASK], where they stand in a raw text; and what the
// vocabularies that have some share.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/files/json_fwd.hpp"
#include "data/tokenisers/vocabulary.hpp"

namespace skytape::data {

struct SpecialToken {
  std::string text;
  std::int32_t number = 0;
  bool takes_spaces = false;         // white space in front of it belongs to it
  bool takes_spaces_behind = false;  // and that behind it
  bool whole_word = false;           // it counts only where no character of a word is next to it
  bool normalised = false;  // an added word: sought once special tokens are cut, normalised itself
  bool piece = true;        // an ordinary entry as well, which words are cut into
};

/// A part of a text: plain, or a special token.
struct TextPart {
  std::string_view text;
  std::int32_t special = -1;  // the token's number; -1: the part is plain
};

class SpecialTokens {
 public:
  /// Adds a token; the later of two with one text counts.
  void add(const SpecialToken& token);

  /// Cuts a text, which must be UTF-8, at the special tokens in it: from the left, the longest of
  /// those that begin at one place. No part is empty.
  [[nodiscard]] std::vector<TextPart> cut(std::string_view text) const;

 private:
  [[nodiscard]] const SpecialToken* at_front(std::string_view text) const;

  std::vector<SpecialToken> tokens_;
  std::array<std::vector<std::size_t>, 256> by_first_byte_;  // places in tokens_
};

/// A list of entries, some of which are found in a text before anything else is cut: special tokens
/// in the raw text, then added words in the normalised one.
class ListedVocabulary : public Vocabulary {
 public:
  [[nodiscard]] std::int64_t size() const final { return std::ssize(entries_); }
  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text,
                                                 const std::string& place) const final;
  [[nodiscard]] std::string entry(std::int32_t token) const final {
    return entries_.at(static_cast<std::size_t>(token));
  }
  void put(Json& provenance) const override;

  /// Number of an entry, of equal pieces the last; -1: there is none.
  [[nodiscard]] std::int32_t number_of(const std::string& entry) const;

 protected:
  /// `added`: entries that seek() seeks. The first `pieces` entries are pieces, but for those that
  /// were added as none.
  ListedVocabulary(std::vector<std::string> entries, std::vector<SpecialToken> added,
                   std::size_t pieces = std::string::npos);
  /// Number of an entry that words are cut into; -1: there is none.
  [[nodiscard]] std::int32_t piece_of(const std::string& entry) const;
  /// Seeks from now on the tokens that were added, a normalised one as normalised() makes it, and
  /// of `usual` those that were not. DataError naming `source` for one that is no UTF-8.
  void seek(const std::vector<SpecialToken>& usual, const std::string& source);

  [[nodiscard]] virtual std::u32string normalised(std::u32string text) const { return text; }
  /// Appends the tokens of a part that has no special ones. `first`: nothing stands before it.
  virtual void append(std::u32string_view part, bool first, const std::string& place,
                      std::vector<std::int32_t>& tokens) const = 0;

 private:
  std::vector<std::string> entries_;
  std::vector<SpecialToken> added_;
  std::vector<bool> is_piece_;  // [entries]
  std::unordered_map<std::string, std::int32_t> numbers_;
  SpecialTokens special_, words_;  // words_: sought in the normalised text
};

/// The entries and the added tokens of a provenance that put() wrote. JsonError if broken.
[[nodiscard]] std::vector<std::string> entries_of(const Json& provenance);
[[nodiscard]] std::vector<SpecialToken> added_tokens_of(const Json& provenance);

}  // namespace skytape::data
