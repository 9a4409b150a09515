// Tells whether this build knows Unicode, which most tokenisers need.
#pragma once

#include "data/unicode/unicode.hpp"
#include "tests/support/doctest.hpp"

namespace skytape::test {

/// Says that the case is skipped where it does not.
[[nodiscard]] inline bool unicode_or_skip() {
  if (!data::knows_unicode()) MESSAGE("skipped: built without utf8proc");
  return data::knows_unicode();
}

}  // namespace skytape::test
