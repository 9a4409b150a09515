// What the program says when something went wrong, and with which exit code it ends.
#pragma once

#include <exception>
#include <string>

namespace skytape::train {

/// The text of our own errors; of a library's, whose texts name functions, a sentence.
[[nodiscard]] std::string in_words(const std::exception& error);

/// That of our own errors, 1 for others.
[[nodiscard]] int exit_code_of(const std::exception& error);

}  // namespace skytape::train
