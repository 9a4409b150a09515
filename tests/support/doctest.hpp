// doctest, made to show what it compares: containers, pairs and optionals element by element. A
// type that it cannot show does not compile. INFO, CAPTURE and …_MESSAGE write their text at once:
// doctest's own write it by a lambda, and clang refuses one that reads a structured binding.
// Tests include this in place of doctest's own header.
#pragma once

#define DOCTEST_CONFIG_REQUIRE_STRINGIFICATION_FOR_ALL_USED_TYPES
#include <doctest/doctest.h>

#include <array>
#include <map>
#include <optional>
#include <ostream>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace skytape::test {

/// "{1, 2, 3}"; of a long list the first entries and how many there are.
template <class List> [[nodiscard]] doctest::String shown_list(const List& list) {
  constexpr std::size_t kMost = 24;
  doctest::String text = "{";
  std::size_t shown = 0;
  for (const auto& entry : list) {
    if (shown == kMost) {
      text += doctest::String(", … ") + doctest::toString(list.size()) + " entries";
      break;
    }
    if (shown++ > 0) text += ", ";
    text += doctest::toString(entry);
  }
  return text += "}";
}
/// Text that a failing check of this scope shows.
template <class... Parts> [[nodiscard]] auto note(const Parts&... parts) {
  return doctest::detail::MakeContextScope(
      [text = (doctest::String() + ... + doctest::toString(parts))](std::ostream* out) {
        *out << text;
      });
}

}  // namespace skytape::test

namespace doctest {

/// Its letters. Doctest shows an address, and does not compile with its own macro for letters.
template <> struct StringMaker<const char*> {
  static String convert(const char* x) { return x == nullptr ? "nullptr" : x; }
};
template <class T> struct StringMaker<std::vector<T>> {
  static String convert(const std::vector<T>& x) { return skytape::test::shown_list(x); }
};
/// Its entries are no references.
template <> struct StringMaker<std::vector<bool>> {
  static String convert(const std::vector<bool>& x) {
    return skytape::test::shown_list(std::vector<int>(x.begin(), x.end()));
  }
};
template <class T, std::size_t N> struct StringMaker<std::array<T, N>> {
  static String convert(const std::array<T, N>& x) { return skytape::test::shown_list(x); }
};
template <class T> struct StringMaker<std::set<T>> {
  static String convert(const std::set<T>& x) { return skytape::test::shown_list(x); }
};
template <class K, class T> struct StringMaker<std::map<K, T>> {
  static String convert(const std::map<K, T>& x) { return skytape::test::shown_list(x); }
};
template <class A, class B> struct StringMaker<std::pair<A, B>> {
  static String convert(const std::pair<A, B>& x) {
    return String("(") + toString(x.first) + ", " + toString(x.second) + ")";
  }
};
template <class T> struct StringMaker<std::optional<T>> {
  static String convert(const std::optional<T>& x) { return x ? toString(*x) : String("nothing"); }
};
template <> struct StringMaker<std::nullopt_t> {
  static String convert(std::nullopt_t) { return "nothing"; }
};

}  // namespace doctest

#undef DOCTEST_INFO_IMPL
#define DOCTEST_INFO_IMPL(unused, unused_too, ...) \
  const auto DOCTEST_ANONYMOUS(DOCTEST_CAPTURE_) = skytape::test::note(__VA_ARGS__)
