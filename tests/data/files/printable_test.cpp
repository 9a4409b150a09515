// Texts from outside, shown: whole characters, a width in terminal columns, both ends of what is
// cut.
#include "data/files/printable.hpp"

#include "tensor/core/error.hpp"
#include "tests/support/doctest.hpp"
#include "tests/support/unicode.hpp"

using namespace skytape;
using namespace skytape::data;

TEST_CASE("a printable text is cut in the middle, never within a character") {
  CHECK(printable("talk.politics.guns", 18) == "talk.politics.guns");
  CHECK(printable("talk.politics.guns", 14) == "talk.po…s.guns");
  CHECK(printable("talk.politics.misc", 14) != printable("talk.politics.guns", 14));
  CHECK(printable(std::string(50, 'a') + std::string(50, 'z')) ==
        join(std::string(20, 'a'), "…", std::string(19, 'z')));
  CHECK(printable("größer und größer", 7) == "grö…ßer");
  for (std::size_t most = 3; most < 30; ++most) {
    const std::string cut = printable("Übergrößenträger in Österreichs Größe", most);
    CAPTURE(cut);
    CHECK(columns_of(cut) == most);
    CHECK(printable_whole(cut) == cut);  // it is UTF-8: nothing in it is escaped
  }
  // Only the ends of a very long text are looked at.
  const std::string endless = "a" + std::string(1 << 20, 'b') + "ü";
  CHECK(printable(endless, 5) == "ab…bü");
}

TEST_CASE("what cannot be shown is told apart: control characters and broken bytes") {
  CHECK(printable("a\tb\x7F") == "a?b?");
  CHECK(printable("b\xF6se") == "b\\xf6se");
  CHECK(printable("b\xE4se") == "b\\xe4se");
  CHECK(printable("\xE4\xB8") == "\\xe4\\xb8");  // a character that was cut
  CHECK(printable("a\u200Fb\u0085") == "a\\u200fb\\u0085");
  CHECK(printable_whole(std::string(90, 'x')) == std::string(90, 'x'));
  CHECK(printable("") == "");
}

TEST_CASE("the length of a character's UTF-8") {
  CHECK(utf8_length("a") == 1);
  CHECK(utf8_length("\u00FF") == 2);
  CHECK(utf8_length("\u597D.") == 3);
  CHECK(utf8_length("\U0001F600") == 4);
  for (const char* const broken : {"\xC0\x80", "\xE0\x80\x80", "\xED\xA0\x80", "\xF5\x80\x80\x80",
                                   "\xE5\xA5", "\x80", "\xF0\x9F\x98"}) {
    CHECK(utf8_length(broken) == 0);
  }
}

TEST_CASE("a width is that of a terminal: Chinese twice, accents and joined emoji once") {
  if (!test::unicode_or_skip()) return;
  CHECK(columns_of("好") == 2);
  CHECK(columns_of("ab好") == 4);
  CHECK(columns_of("e\u0301") == 1);
  CHECK(columns_of("\U0001F468\u200D\U0001F469\u200D\U0001F467") == 2);  // a family
  CHECK(columns_of("\U0001F1E9\U0001F1EA") == 2);                        // a flag
  CHECK(printable("你好世界", 8) == "你好世界");
  CHECK(printable("你好世界", 7) == "你…界");  // seven columns hold no more
  CHECK(printable("abce\u0301fghij", 9) == "abce\u0301fghij");
  CHECK(printable("abce\u0301fghij", 8) == "abce\u0301…hij");
}
