// Names in texts: "did you mean …?" for one that a user misspelt, and several in a row.
#pragma once

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

}  // namespace skytape
