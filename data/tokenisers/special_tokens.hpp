// Tokens with a meaning of their own, such as [MASK], where they stand in a raw text.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/files/json.hpp"

namespace skytape::data {

struct SpecialToken {
  std::string text;
  std::int32_t number = 0;
  bool takes_spaces = false;         // white space in front of it belongs to it
  bool takes_spaces_behind = false;  // and that behind it
  bool whole_word = false;           // it counts only where no letter or number is beside it
  bool normalised = false;  // an added word: sought once special tokens are cut, normalised itself
};

/// A part of a text: plain, or a special token.
struct TextPart {
  std::string_view text;
  std::int32_t special = -1;  // the token's number; -1: the part is plain
};

class SpecialTokens {
 public:
  SpecialTokens() = default;
  SpecialTokens(const std::vector<SpecialToken>& tokens) {
    for (const SpecialToken& token : tokens) add(token);
  }
  /// Of two with one text the later one counts.
  void add(const SpecialToken& token);
  [[nodiscard]] bool empty() const { return tokens_.empty(); }

  /// Cuts a text, which must be UTF-8, at the special tokens in it: from the left, the longest of
  /// those that begin at one place. No part is empty.
  [[nodiscard]] std::vector<TextPart> cut(std::string_view text) const;

 private:
  [[nodiscard]] const SpecialToken* at_front(std::string_view text) const;

  std::vector<SpecialToken> tokens_;
  std::array<std::vector<std::size_t>, 256> by_first_byte_;  // places in tokens_
};

/// As provenance holds them: [{"content", "id", "lstrip", …}], and back. JsonError if broken.
[[nodiscard]] Json to_json(const std::vector<SpecialToken>& tokens);
[[nodiscard]] std::vector<SpecialToken> special_tokens_in(const Json& tokens);

}  // namespace skytape::data
