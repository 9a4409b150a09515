#include "data/files/printable.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#ifdef SKYTAPE_HAVE_UTF8PROC
#include <utf8proc.h>
#endif

namespace skytape::data {
namespace {

constexpr std::size_t kMostSeen = 4096;  // bytes at each end of a long text that may be shown

/// A character as a reader sees it, with its accents.
struct Seen {
  std::string text;
  std::size_t columns = 0;
};

/// The character that `bytes`, which are UTF-8, stand for.
char32_t decode(std::string_view bytes) {
  const auto first = static_cast<std::uint8_t>(bytes[0]);
  if (bytes.size() == 1) return first;
  char32_t c = first & (0x7F >> bytes.size());
  for (const char byte : bytes.substr(1)) c = c << 6 | (static_cast<std::uint8_t>(byte) & 0x3F);
  return c;
}

/// Says whether a character moves the cursor, turns its direction or is unseen. The joiners (200C,
/// 200D) are not among them: they shape letters and emoji.
bool is_unseen(char32_t c) {
  constexpr char32_t kUnseen[][2] = {{0x80, 0x9F},     {0xAD, 0xAD},     {0x200B, 0x200B},
                                     {0x200E, 0x200F}, {0x2028, 0x202E}, {0x2060, 0x206F},
                                     {0xFEFF, 0xFEFF}};
  return std::any_of(std::begin(kUnseen), std::end(kUnseen),
                     [&](const auto& range) { return c >= range[0] && c <= range[1]; });
}

#ifdef SKYTAPE_HAVE_UTF8PROC
std::size_t width_of(char32_t c) {
  return static_cast<std::size_t>(
      std::max(0, utf8proc_charwidth(static_cast<utf8proc_int32_t>(c))));
}

/// Tells which characters a reader sees as one.
class Graphemes {
 public:
  bool goes_on(char32_t c) {
    const auto now = static_cast<utf8proc_int32_t>(c);
    const bool same = before_ >= 0 && !utf8proc_grapheme_break_stateful(before_, now, &state_);
    before_ = now;
    return same;
  }

 private:
  utf8proc_int32_t before_ = -1, state_ = 0;
};
#else
std::size_t width_of(char32_t) { return 1; }

struct Graphemes {
  bool goes_on(char32_t) { return false; }
};
#endif

std::vector<Seen> seen_in(std::string_view text) {
  std::vector<Seen> all;
  Graphemes graphemes;
  const auto add_escaped = [&](const std::string& escaped) {
    all.push_back({escaped, escaped.size()});
    graphemes = {};
  };
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_length(text.substr(at));
    const std::string_view bytes = text.substr(at, std::max<std::size_t>(length, 1));
    at += bytes.size();
    const char32_t c = decode(bytes.substr(0, std::max<std::size_t>(length, 1)));
    if (length == 0) {
      add_escaped(fmt::format("\\x{:02x}", static_cast<std::uint8_t>(bytes[0])));
    } else if (c < ' ' || c == 0x7F) {
      add_escaped("?");
    } else if (is_unseen(c)) {
      add_escaped(fmt::format("\\u{:04x}", static_cast<std::uint32_t>(c)));
    } else if (graphemes.goes_on(c)) {
      all.back().text += bytes;
      all.back().columns = std::min<std::size_t>(all.back().columns + width_of(c), 2);
    } else {
      all.push_back({std::string(bytes), width_of(c)});
    }
  }
  return all;
}

std::size_t columns_of(const std::vector<Seen>& all) {
  std::size_t columns = 0;
  for (const Seen& seen : all) columns += seen.columns;
  return columns;
}

std::string joined(const std::vector<Seen>& all) {
  std::string text;
  for (const Seen& seen : all) text += seen.text;
  return text;
}

/// Returns the characters at the front that fit into so many columns.
std::vector<Seen> fitting(const std::vector<Seen>& all, std::size_t columns) {
  std::vector<Seen> some;
  for (const Seen& seen : all) {
    if (seen.columns > columns) break;
    columns -= seen.columns;
    some.push_back(seen);
  }
  return some;
}

}  // namespace

// Unicode 15, table 3-7.
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) {
    return i < text.size() ? static_cast<std::uint8_t>(text[i]) : std::uint8_t{0};
  };
  const std::uint8_t first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t length = first < 0xC2    ? 0
                             : first < 0xE0  ? 2
                             : first < 0xF0  ? 3
                             : first <= 0xF4 ? 4
                                             : 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  const bool overlong = (first == 0xE0 && byte(1) < 0xA0) || (first == 0xF0 && byte(1) < 0x90);
  const bool beyond = (first == 0xED && byte(1) > 0x9F) || (first == 0xF4 && byte(1) > 0x8F);
  return overlong || beyond ? 0 : length;
}

std::string printable(std::string_view text, std::size_t most) {
  const bool is_long = text.size() > 2 * kMostSeen;  // only its ends are looked at
  const std::vector<Seen> front = seen_in(is_long ? text.substr(0, kMostSeen) : text);
  if (!is_long && columns_of(front) <= most) return joined(front);
  std::vector<Seen> back = is_long ? seen_in(text.substr(text.size() - kMostSeen)) : front;
  std::reverse(back.begin(), back.end());
  const std::size_t at_front = most / 2, behind = most - std::min(most, at_front + 1);
  std::vector<Seen> ending = fitting(back, behind);
  std::reverse(ending.begin(), ending.end());
  return joined(fitting(front, at_front)) + "…" + joined(ending);
}

std::string printable_whole(std::string_view text) { return joined(seen_in(text)); }

std::size_t columns_of(std::string_view text) { return columns_of(seen_in(text)); }

}  // namespace skytape::data
