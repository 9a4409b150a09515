#include "data/tokenisers/special_tokens.hpp"

#include <algorithm>

#include "data/files/json.hpp"
#include "data/unicode/unicode.hpp"
#include "tensor/core/error.hpp"

namespace skytape::data {
namespace {

bool goes_on(char byte) { return (static_cast<std::uint8_t>(byte) & 0xC0) == 0x80; }

/// Returns the first character of a text, which must be UTF-8; nothing where it is empty.
std::string_view first_character(std::string_view text) {
  std::size_t end = std::min<std::size_t>(1, text.size());
  while (end < text.size() && goes_on(text[end])) ++end;
  return text.substr(0, end);
}

std::string_view last_character(std::string_view text) {
  std::size_t begin = text.size() - std::min<std::size_t>(1, text.size());
  while (begin > 0 && goes_on(text[begin])) --begin;
  return text.substr(begin);
}

/// Returns whether characters of a word are next to text[begin, end).
bool inside_word(std::string_view text, std::size_t begin, std::size_t end) {
  const std::u32string neighbours = decode_utf8(last_character(text.substr(0, begin)), "text") +
                                    decode_utf8(first_character(text.substr(end)), "text");
  return std::any_of(neighbours.begin(), neighbours.end(), is_word_character);
}

std::size_t spaces_at_front(std::string_view text) {
  std::size_t bytes = 0;
  for (;;) {
    const std::string_view next = first_character(text.substr(bytes));
    if (next.empty() || !is_space(decode_utf8(next, "text").front())) return bytes;
    bytes += next.size();
  }
}

}  // namespace

void SpecialTokens::add(const SpecialToken& token) {
  if (token.text.empty()) return;
  const auto same = std::find_if(tokens_.begin(), tokens_.end(),
                                 [&](const SpecialToken& t) { return t.text == token.text; });
  if (same != tokens_.end()) {
    *same = token;
    return;
  }
  by_first_byte_[static_cast<std::uint8_t>(token.text[0])].push_back(tokens_.size());
  tokens_.push_back(token);
}

const SpecialToken* SpecialTokens::at_front(std::string_view text) const {
  const SpecialToken* longest = nullptr;
  for (const std::size_t i : by_first_byte_[static_cast<std::uint8_t>(text[0])]) {
    const SpecialToken& token = tokens_[i];
    if (!text.starts_with(token.text)) continue;
    if (longest == nullptr || token.text.size() > longest->text.size()) longest = &token;
  }
  return longest;
}

std::vector<TextPart> SpecialTokens::cut(std::string_view text) const {
  std::vector<TextPart> parts;
  std::size_t plain = 0;  // where the plain text before `at` begins
  const auto end_plain = [&](std::size_t end, bool drop_spaces) {
    if (end < plain) return;  // a token begins in the spaces that the one before it took
    std::string_view part = text.substr(plain, end - plain);
    if (drop_spaces) part = without_spaces_behind(part);
    if (!part.empty()) parts.push_back({part, -1});
  };
  for (std::size_t at = 0; at < text.size();) {
    const SpecialToken* const token = at_front(text.substr(at));
    if (token == nullptr) {
      ++at;
      continue;
    }
    const std::size_t end = at + token->text.size();
    std::size_t behind = end;
    if (token->takes_spaces_behind) {  // those up to `plain` are known: no run is searched twice
      behind = std::max(end, plain);
      if (behind == end) behind += spaces_at_front(text.substr(end));
    }
    const bool taken = token->takes_spaces && behind <= plain;  // by the token before it
    if (!taken && !(token->whole_word && inside_word(text, at, end))) {
      end_plain(at, token->takes_spaces);
      parts.push_back({text.substr(at, token->text.size()), token->number});
      plain = behind;
    }
    at = end;
  }
  end_plain(text.size(), false);
  return parts;
}

ListedVocabulary::ListedVocabulary(std::vector<std::string> entries,
                                   std::vector<SpecialToken> added, std::size_t pieces)
    : entries_(std::move(entries)), added_(std::move(added)), is_piece_(entries_.size()) {
  for (std::size_t i = 0; i < std::min(pieces, entries_.size()); ++i) is_piece_[i] = true;
  for (const SpecialToken& token : added_) {
    ENSURE(token.number >= 0 && token.number < size(), "vocabulary: the added token ", token.text,
           " has number ", token.number, ", expected one of ", size(), " entries");
    if (!token.piece) is_piece_[static_cast<std::size_t>(token.number)] = false;
  }
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const auto number = static_cast<std::int32_t>(i);
    const auto [found, is_new] = numbers_.try_emplace(entries_[i], number);
    if (!is_new && is_piece_[i]) found->second = number;
  }
}

void ListedVocabulary::seek(const std::vector<SpecialToken>& usual, const std::string& source) {
  for (const SpecialToken& token : usual) {
    const bool is_added = std::any_of(added_.begin(), added_.end(), [&](const SpecialToken& added) {
      return added.text == token.text;
    });
    if (!is_added) special_.add(token);
  }
  for (SpecialToken token : added_) {
    if (token.normalised) token.text = encode_utf8(normalised(decode_utf8(token.text, source)));
    (token.normalised ? words_ : special_).add(token);
  }
}

std::int32_t ListedVocabulary::number_of(const std::string& entry) const {
  const auto found = numbers_.find(entry);
  return found == numbers_.end() ? -1 : found->second;
}

std::int32_t ListedVocabulary::piece_of(const std::string& entry) const {
  const std::int32_t number = number_of(entry);
  return number >= 0 && is_piece_[static_cast<std::size_t>(number)] ? number : -1;
}

std::vector<std::int32_t> ListedVocabulary::encode(std::string_view text,
                                                   const std::string& place) const {
  (void)decode_utf8(text, place);  // before it is cut: the message has the place in the whole text
  std::vector<std::int32_t> tokens;
  bool first = true;
  for (const TextPart& part : special_.cut(text)) {
    if (part.special >= 0) {
      tokens.push_back(part.special);
      first = false;
      continue;
    }
    const std::string plain = encode_utf8(normalised(decode_utf8(part.text, place)));
    for (const TextPart& rest : words_.cut(plain)) {
      if (rest.special >= 0) {
        tokens.push_back(rest.special);
      } else {
        append(decode_utf8(rest.text, place), first, place, tokens);
      }
      first = false;
    }
    first = false;
  }
  return tokens;
}

void ListedVocabulary::put(Json& provenance) const {
  provenance["vocabulary"] = entries_;
  for (const SpecialToken& token : added_) {
    Json added = {{"content", token.text},           {"id", token.number},
                  {"lstrip", token.takes_spaces},    {"rstrip", token.takes_spaces_behind},
                  {"single_word", token.whole_word}, {"normalized", token.normalised}};
    if (!token.piece) added["piece"] = false;
    provenance["added_tokens"].push_back(std::move(added));
  }
}

std::vector<std::string> entries_of(const Json& provenance) {
  return provenance.at("vocabulary").get<std::vector<std::string>>();
}

std::vector<SpecialToken> added_tokens_of(const Json& provenance) {
  std::vector<SpecialToken> all;
  for (const Json& token : member(provenance, "added_tokens")) {
    all.push_back({token.at("content").get<std::string>(),
                   static_cast<std::int32_t>(token.at("id").get<std::int64_t>()),
                   token.value("lstrip", false), token.value("rstrip", false),
                   token.value("single_word", false), token.value("normalized", false),
                   token.value("piece", true)});
  }
  return all;
}

}  // namespace skytape::data
