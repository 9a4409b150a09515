// Errors. Every message names the operation, what it expected and what came.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace skytape {

/// Wrong use of a function or a failed check. The program exits with `exit_code()` (README, "Exit
/// codes").
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& text, int exit_code = 1)
      : std::runtime_error(text), exit_code_(exit_code) {}
  [[nodiscard]] int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

/// Unknown name, key or flag, or a value out of range (exit code 2).
struct UsageError : Error {
  explicit UsageError(const std::string& text) : Error(text, 2) {}
};

/// Data or checkpoint missing, foreign or broken (exit code 3).
struct DataError : Error {
  explicit DataError(const std::string& text) : Error(text, 3) {}
};

/// A loss, gradient or activation is not finite (exit code 4).
struct NonFiniteError : Error {
  explicit NonFiniteError(const std::string& text) : Error(text, 4) {}
};

/// Joins its arguments as a stream would print them.
template <class... Parts> [[nodiscard]] std::string join(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return text.str();
}

}  // namespace skytape

/// ENSURE(condition, parts…): throws Error with the parts joined unless the condition holds.
#define ENSURE(condition, ...)                                              \
  do {                                                                      \
    if (!(condition)) throw ::skytape::Error(::skytape::join(__VA_ARGS__)); \
  } while (false)
