// Characters: UTF-8, and the properties of Unicode that tokenisers ask for. utf8proc has the
// tables; a build without it throws DataError that says how to get it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace skytape::data {

/// Returns whether this build has Unicode's tables.
[[nodiscard]] bool knows_unicode();

/// The characters of a text. DataError naming `place` where the bytes are no UTF-8.
[[nodiscard]] std::u32string decode_utf8(std::string_view text, const std::string& place);
/// The other way.
void append_utf8(std::string& text, char32_t character);
[[nodiscard]] std::string encode_utf8(std::u32string_view characters);

/// White space (White_Space), letters (L), numbers (N), punctuation (P).
[[nodiscard]] bool is_space(char32_t c);
[[nodiscard]] bool is_letter(char32_t c);
[[nodiscard]] bool is_number(char32_t c);
[[nodiscard]] bool is_punctuation(char32_t c);
/// Accents and other marks that take no room of their own (Mn).
[[nodiscard]] bool is_nonspacing_mark(char32_t c);
/// Those, and marks that take room or enclose (M).
[[nodiscard]] bool is_mark(char32_t c);
/// Says whether \w takes a character (Unicode's report 18): alphabetic characters, marks, decimal
/// digits, what connects words (_), and joiners.
[[nodiscard]] bool is_word_character(char32_t c);
/// Characters that control something, shape their neighbours or are for private use (Cc, Cf, Co).
[[nodiscard]] bool is_control(char32_t c);

/// In small letters: one character, or two (İ becomes i and a dot above).
[[nodiscard]] std::u32string lower_case(std::u32string_view text);
/// Letters with their accents (C) or apart from them (D); with K, too, what looks alike is the
/// same.
enum class NormalForm { c, d, kc, kd };
[[nodiscard]] std::u32string normal_form(std::u32string_view text, NormalForm form);
/// The parts that a reader takes for one character each: a letter and its accents, an emoji.
[[nodiscard]] std::vector<std::u32string_view> graphemes(std::u32string_view text);

/// `text` without the white space at its end; it must be UTF-8.
[[nodiscard]] std::string_view without_spaces_behind(std::string_view text);

}  // namespace skytape::data
