#include "tensor/core/error.hpp"

#include <locale>

#include "tests/support/doctest.hpp"

using namespace skytape;

namespace {

/// Numbers as in German: 16.777.216 and 2,5.
struct German : std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
};

}  // namespace

TEST_CASE("messages have numbers as in C++, whatever locale the program has chosen") {
  const std::locale before = std::locale::global({std::locale::classic(), new German});
  const std::string text = join("n = ", std::int64_t{16777216}, ", x = ", 2.5);
  std::locale::global(before);
  CHECK(text == "n = 16777216, x = 2.5");
}
