// Names and numbers in texts: "did you mean …?" for a name that a user misspelt, several in a row,
// and what a text that should be a number says.
#pragma once

#include <algorithm>
#include <charconv>
#include <functional>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/core/error.hpp"

namespace skytape {

/// The candidate with the fewest edits (insert, delete, replace, swap neighbours) from `name`;
/// empty when nothing is near: more than a third of its letters, at least two, would change.
[[nodiscard]] std::string nearest(std::string_view name,
                                  const std::vector<std::string>& candidates);

/// `unknown task 'listop' (did you mean 'listops'? known: image, listops, …)`.
[[nodiscard]] std::string unknown_name(std::string_view kind, std::string_view name,
                                       const std::vector<std::string>& candidates);

/// The entry of `all` that is called so, by its member `name_of`. Throws UsageError with
/// unknown_name where none is.
template <class All, class NameOf>
[[nodiscard]] const auto& find_named(std::string_view kind, std::string_view name, const All& all,
                                     NameOf name_of) {
  const auto found = std::ranges::find(all, name, name_of);
  if (found != std::end(all)) return *found;
  std::vector<std::string> known;
  for (const auto& entry : all) known.emplace_back(std::invoke(name_of, entry));
  throw UsageError(unknown_name(kind, name, known));
}

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
