// The text of an error that an expression throws.
#pragma once

#include <string>

#include "tests/support/close.hpp"
#include "tests/support/doctest.hpp"

#define CHECK_MESSAGE_HAS(expression, part)                                          \
  do {                                                                               \
    const std::string text = skytape::test::error_text([&] { (void)(expression); }); \
    CHECK_MESSAGE(text.find(part) != std::string::npos, "got: ", text);              \
  } while (false)
