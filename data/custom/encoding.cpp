#include "data/custom/encoding.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "data/files/printable.hpp"
#include "tensor/core/error.hpp"

namespace skytape::data {
std::size_t first_not_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_length(text.substr(at));
    if (length == 0) return at;
    at += length;
  }
  return text.npos;
}

void refuse_utf16(std::string_view beginning, const std::string& file) {
  if (beginning.starts_with("\xFF\xFE") || beginning.starts_with("\xFE\xFF")) {
    throw DataError(fmt::format(
        "{}: in UTF-16, expected UTF-8: `iconv -f utf-16 -t utf-8 FILE > NEW` makes it", file));
  }
  std::size_t zeros[2] = {};  // at even and at odd places
  for (std::size_t i = 0; i < beginning.size(); ++i) zeros[i % 2] += beginning[i] == '\0';
  const std::size_t most = std::max(zeros[0], zeros[1]);
  if (most < 2 || 4 * most < beginning.size()) return;
  throw DataError(
      fmt::format("{}: looks like UTF-16, as {} of its first {} bytes are 0; expected UTF-8: "
                  "`iconv -f utf-16{} -t utf-8 FILE > NEW` makes it",
                  file, zeros[0] + zeros[1], beginning.size(), zeros[1] > zeros[0] ? "le" : "be"));
}

void EncodingCheck::see(std::string_view text, const std::string& place) {
  ++texts_;
  if (const std::size_t nul = text.find('\0'); nul != text.npos) {
    throw DataError(fmt::format(
        "{}: byte {} of '{}' is 0, expected a text in UTF-8 (of UTF-16 `iconv -f utf-16 -t utf-8 "
        "FILE > NEW` makes it)",
        place, nul + 1, printable(text)));
  }
  const std::size_t at = first_not_utf8(text);
  if (at == text.npos) return;
  const std::string what = fmt::format(
      "{}: byte {} of '{}', {:#04x}, is no UTF-8; if it is Latin-1, `iconv -f latin1 -t "
      "utf-8 FILE > NEW` makes it",
      place, at + 1, printable(text), static_cast<std::uint8_t>(text[at]));
  if (refuses_) throw DataError(what);
  if (others_++ == 0) first_ = what;
}

std::string EncodingCheck::warning() const {
  if (others_ == 0) return {};
  return fmt::format("{} of {} texts are read as bytes, the first of them: {}", others_, texts_,
                     first_);
}

}  // namespace skytape::data
