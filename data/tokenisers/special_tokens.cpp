#include "data/tokenisers/special_tokens.hpp"

#include "data/tokenisers/unicode.hpp"

namespace skytape::data {
namespace {

/// The longest token that `text` begins with, or null.
const SpecialToken* token_at_front(const std::vector<SpecialToken>& tokens, std::string_view text) {
  const SpecialToken* longest = nullptr;
  for (const SpecialToken& token : tokens) {
    if (!text.starts_with(token.text)) continue;
    if (longest == nullptr || token.text.size() > longest->text.size()) longest = &token;
  }
  return longest;
}

}  // namespace

std::vector<TextPart> cut_at(const std::vector<SpecialToken>& tokens, std::string_view text) {
  std::vector<TextPart> parts;
  std::size_t plain = 0;  // where the plain text before `at` begins
  const auto end_plain = [&](std::size_t end, bool drop_spaces) {
    std::string_view part = text.substr(plain, end - plain);
    if (drop_spaces) part = without_spaces_behind(part);
    if (!part.empty()) parts.push_back({part, -1});
  };
  for (std::size_t at = 0; at < text.size();) {
    const SpecialToken* const token = token_at_front(tokens, text.substr(at));
    if (token == nullptr) {
      ++at;
      continue;
    }
    end_plain(at, token->takes_spaces);
    parts.push_back({text.substr(at, token->text.size()), token->number});
    at = plain = at + token->text.size();
  }
  end_plain(text.size(), false);
  return parts;
}

}  // namespace skytape::data
