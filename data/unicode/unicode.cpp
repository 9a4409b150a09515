#include "data/unicode/unicode.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "data/files/printable.hpp"
#include "tensor/core/error.hpp"

#ifdef SKYTAPE_HAVE_UTF8PROC
#include <utf8proc.h>
#endif

namespace skytape::data {

#ifdef SKYTAPE_HAVE_UTF8PROC
namespace {

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

bool is_between(utf8proc_category_t first, char32_t c, utf8proc_category_t last) {
  return category(c) >= first && category(c) <= last;
}

const std::uint8_t* bytes_of(std::string_view text) {
  return reinterpret_cast<const std::uint8_t*>(text.data());
}

}  // namespace

bool knows_unicode() { return true; }

std::u32string decode_utf8(std::string_view text, const std::string& place) {
  std::u32string characters;
  characters.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    utf8proc_int32_t c = 0;
    const auto length = utf8proc_iterate(
        bytes_of(text) + at,
        static_cast<utf8proc_ssize_t>(std::min<std::size_t>(text.size() - at, 4)), &c);
    if (length <= 0) {
      throw DataError(fmt::format("{}: byte {} of '{}' is no UTF-8", place, at + 1,
                                  printable(text.substr(at > 10 ? at - 10 : 0))));
    }
    characters.push_back(static_cast<char32_t>(c));
    at += static_cast<std::size_t>(length);
  }
  return characters;
}

void append_utf8(std::string& text, char32_t character) {
  std::uint8_t bytes[4];
  const auto length = utf8proc_encode_char(static_cast<utf8proc_int32_t>(character), bytes);
  text.append(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(length));
}

bool is_space(char32_t c) {
  return (c >= '\t' && c <= '\r') || c == 0x85 ||
         is_between(UTF8PROC_CATEGORY_ZS, c, UTF8PROC_CATEGORY_ZP);
}
bool is_letter(char32_t c) { return is_between(UTF8PROC_CATEGORY_LU, c, UTF8PROC_CATEGORY_LO); }
bool is_number(char32_t c) { return is_between(UTF8PROC_CATEGORY_ND, c, UTF8PROC_CATEGORY_NO); }
bool is_punctuation(char32_t c) {
  return is_between(UTF8PROC_CATEGORY_PC, c, UTF8PROC_CATEGORY_PO);
}
bool is_nonspacing_mark(char32_t c) { return category(c) == UTF8PROC_CATEGORY_MN; }
bool is_mark(char32_t c) { return is_between(UTF8PROC_CATEGORY_MN, c, UTF8PROC_CATEGORY_ME); }
bool is_word_character(char32_t c) {
  const utf8proc_category_t kind = category(c);
  // Letters in circles and squares are symbols (So), but alphabetic.
  const bool enclosed = (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
                        (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
  const bool joiner = c == 0x200C || c == 0x200D;
  return is_letter(c) || is_mark(c) || kind == UTF8PROC_CATEGORY_ND ||
         kind == UTF8PROC_CATEGORY_NL || kind == UTF8PROC_CATEGORY_PC || enclosed || joiner;
}
bool is_control(char32_t c) {
  const utf8proc_category_t kind = category(c);
  return kind == UTF8PROC_CATEGORY_CC || kind == UTF8PROC_CATEGORY_CF ||
         kind == UTF8PROC_CATEGORY_CO;
}

std::u32string lower_case(std::u32string_view text) {
  std::u32string lower;
  lower.reserve(text.size());
  for (const char32_t c : text) {
    if (c == 0x130) {  // the only character whose small form is two; utf8proc's tables have one
      lower += U"i\u0307";
    } else {
      lower.push_back(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
    }
  }
  return lower;
}

std::u32string normal_form(std::u32string_view text, NormalForm form) {
  const std::string bytes = encode_utf8(text);
  const bool compatible = form == NormalForm::kc || form == NormalForm::kd;
  const bool composed = form == NormalForm::c || form == NormalForm::kc;
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE |
                                                      (compatible ? UTF8PROC_COMPAT : 0));
  const auto length = static_cast<utf8proc_ssize_t>(bytes.size());
  const auto needed = utf8proc_decompose(bytes_of(bytes), length, nullptr, 0, options);
  ENSURE(needed >= 0, "unicode: utf8proc: ", utf8proc_errmsg(needed));
  std::vector<utf8proc_int32_t> found(static_cast<std::size_t>(needed));
  (void)utf8proc_decompose(bytes_of(bytes), length, found.data(), needed, options);
  if (composed) {
    constexpr auto kCompose = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    const auto left = utf8proc_normalize_utf32(found.data(), needed, kCompose);
    ENSURE(left >= 0, "unicode: utf8proc: ", utf8proc_errmsg(left));
    found.resize(static_cast<std::size_t>(left));
  }
  return {found.begin(), found.end()};
}

std::vector<std::u32string_view> graphemes(std::u32string_view text) {
  std::vector<std::u32string_view> parts;
  utf8proc_int32_t state = 0;
  std::size_t begin = 0;
  for (std::size_t at = 1; at <= text.size(); ++at) {
    const bool ends = at == text.size() || utf8proc_grapheme_break_stateful(
                                               static_cast<utf8proc_int32_t>(text[at - 1]),
                                               static_cast<utf8proc_int32_t>(text[at]), &state);
    if (!ends) continue;
    parts.push_back(text.substr(begin, at - begin));
    begin = at;
  }
  return parts;
}

std::string_view without_spaces_behind(std::string_view text) {
  while (!text.empty()) {
    std::size_t begin = text.size() - 1;
    while (begin > 0 && (static_cast<std::uint8_t>(text[begin]) & 0xC0) == 0x80) --begin;
    utf8proc_int32_t c = 0;
    (void)utf8proc_iterate(bytes_of(text) + begin,
                           static_cast<utf8proc_ssize_t>(text.size() - begin), &c);
    if (c < 0 || !is_space(static_cast<char32_t>(c))) break;
    text.remove_suffix(text.size() - begin);
  }
  return text;
}
#else
namespace {

[[noreturn]] void refuse() {
  throw DataError(
      "this build has no tables of Unicode, which subword tokens need: install libutf8proc-dev and "
      "type make, or take --tokens bytes, words or integers");
}

}  // namespace

bool knows_unicode() { return false; }
std::u32string decode_utf8(std::string_view, const std::string&) { refuse(); }
void append_utf8(std::string&, char32_t) { refuse(); }
bool is_space(char32_t) { refuse(); }
bool is_letter(char32_t) { refuse(); }
bool is_number(char32_t) { refuse(); }
bool is_punctuation(char32_t) { refuse(); }
bool is_nonspacing_mark(char32_t) { refuse(); }
bool is_mark(char32_t) { refuse(); }
bool is_word_character(char32_t) { refuse(); }
bool is_control(char32_t) { refuse(); }
std::u32string lower_case(std::u32string_view) { refuse(); }
std::u32string normal_form(std::u32string_view, NormalForm) { refuse(); }
std::vector<std::u32string_view> graphemes(std::u32string_view) { refuse(); }
std::string_view without_spaces_behind(std::string_view) { refuse(); }
#endif

std::string encode_utf8(std::u32string_view characters) {
  std::string bytes;
  for (const char32_t c : characters) append_utf8(bytes, c);
  return bytes;
}

}  // namespace skytape::data
