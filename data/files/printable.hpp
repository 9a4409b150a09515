// Texts from outside as a message, a table or a terminal shows them: whole characters, cut to a
// width.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace skytape::data {

/// Bytes of the character at the front of `text`, which is not empty; 0: it is no UTF-8.
[[nodiscard]] std::size_t utf8_length(std::string_view text);

/// A text for a message or the cell of a table, at most `most` terminal columns wide: what is
/// longer is cut in the middle, where "…" stands, so that both ends are seen. ASCII's control
/// characters are '?'; others that cannot be seen, and bytes that are no UTF-8, are written as
/// \u200e and \xf6.
[[nodiscard]] std::string printable(std::string_view text, std::size_t most = 40);
/// Returns the whole text, not cut: texts that differ in the middle must be told apart.
[[nodiscard]] std::string printable_whole(std::string_view text);

/// Terminal columns of a printable text. A Chinese character or an emoji takes two, an accent none;
/// a build without utf8proc counts one for each character.
[[nodiscard]] std::size_t columns_of(std::string_view text);

}  // namespace skytape::data
