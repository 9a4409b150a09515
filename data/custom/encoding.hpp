// Checks whether a user's texts are UTF-8, and reports those that are not.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace skytape::data {

/// Returns the position of the first byte that is not UTF-8; npos: there is none.
[[nodiscard]] std::size_t first_not_utf8(std::string_view text);

/// Refuses the beginning of a file that has the byte order mark of UTF-16, or so many zeros as
/// Latin letters have in it. DataError naming `file`.
void refuse_utf16(std::string_view beginning, const std::string& file);

/// Sees whether texts are UTF-8: others are refused, or counted and read as bytes.
class EncodingCheck {
 public:
  explicit EncodingCheck(bool refuses) : refuses_(refuses) {}
  /// DataError naming `place` for a byte of value 0, which no text has, and for what is refused.
  void see(std::string_view text, const std::string& place);
  /// Says how many there are, where the first one is, and the remedy; empty: there is none.
  [[nodiscard]] std::string warning() const;

 private:
  bool refuses_;
  std::int64_t texts_ = 0, others_ = 0;
  std::string first_;
};

}  // namespace skytape::data
