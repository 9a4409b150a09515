// Tells whether a text has a part: what an error must name.
#pragma once

#include <string_view>

namespace skytape::test {

[[nodiscard]] inline bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

}  // namespace skytape::test
