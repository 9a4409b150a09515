#include "tensor/core/suggest.hpp"

#include "tests/support/doctest.hpp"

using namespace skytape;

TEST_CASE("nearest finds a name one slip away and nothing far away") {
  const std::vector<std::string> names = {"listops", "text", "image"};
  CHECK(nearest("listop", names) == "listops");
  CHECK(nearest("lsitops", names) == "listops");
  CHECK(nearest("imagee", names) == "image");
  CHECK(nearest("translation", names).empty());
  CHECK(nearest("x", {}).empty());
}

TEST_CASE("two neighbours that changed places are one slip") {
  CHECK(nearest("lsit", {"last", "list"}) == "list");  // the other one has two wrong letters
  CHECK(nearest("etxs", {"rests", "texts"}) == "texts");
  CHECK(nearest("badc", {"abcd"}) == "abcd");  // two swaps, the most that a short name may be off
  CHECK(nearest("badcfe", {"abcdef"}).empty());
}

TEST_CASE("an unknown name is reported with the nearest and all known names") {
  CHECK(unknown_name("task", "listop", {"listops", "text"}) ==
        "unknown task 'listop' (did you mean 'listops'? known: listops, text)");
  CHECK(unknown_name("task", "quux", {"listops", "text"}) ==
        "unknown task 'quux' (known: listops, text)");
}

TEST_CASE("a number is all of its text, and fits") {
  CHECK(number_in<int>("-12") == -12);
  CHECK(number_in<double>("1e-3") == 1e-3);
  for (const char* text : {"", " 1", "1 ", "+1", "1.5", "2147483648", "x"}) {
    CHECK_FALSE(number_in<int>(text).has_value());
  }
  CHECK_FALSE(number_in<unsigned>("-1").has_value());
}

TEST_CASE("names in a row have something between them, and nothing around") {
  const std::vector<std::string> names = {"a", "b", "c"};
  CHECK(listed(names) == "a, b, c");
  CHECK(listed(names, "\t") == "a\tb\tc");
  CHECK(listed(std::span(names).first(1)) == "a");
  CHECK(listed({}).empty());
}
