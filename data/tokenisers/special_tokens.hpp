// Tokens with a meaning of their own, such as [MASK], where they stand in a raw text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace skytape::data {

struct SpecialToken {
  std::string text;
  std::int32_t number = 0;
  bool takes_spaces = false;  // white space in front of it belongs to it
};

/// A part of a text: plain, or a special token.
struct TextPart {
  std::string_view text;
  std::int32_t special = -1;  // the token's number; -1: the part is plain
};

/// Cuts a text, which must be UTF-8, at the special tokens in it: from the left, the longest of
/// those that begin at one place. No part is empty.
[[nodiscard]] std::vector<TextPart> cut_at(const std::vector<SpecialToken>& tokens,
                                           std::string_view text);

}  // namespace skytape::data
