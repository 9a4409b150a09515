// Names and numbers in texts: "did you mean …?" for a name that a user misspelt, several in a row,
// and what a text that should be a number says.
#pragma once

#include <charconv>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace skytape {

/// The candidate with the fewest edits (insert, delete, replace, swap neighbours) from `name`;
/// empty when nothing is near: more than a third of its letters, at least two, would change.
[[nodiscard]] std::string nearest(std::string_view name,
                                  const std::vector<std::string>& candidates);

/// `unknown task 'listop' (did you mean 'listops'? known: image, listops, …)`.
[[nodiscard]] std::string unknown_name(std::string_view kind, std::string_view name,
                                       const std::vector<std::string>& candidates);

/// "a, b, c".
[[nodiscard]] std::string listed(std::span<const std::string> names,
                                 std::string_view between = ", ");

/// The decimal number that `text` is, from its first letter to its last; nothing for any other
/// text, and for a number that T does not hold.
template <class T> [[nodiscard]] std::optional<T> number_in(std::string_view text) {
  T value{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || stop != end) return std::nullopt;
  return value;
}

}  // namespace skytape
