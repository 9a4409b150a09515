// Errors. Every message names the operation, what it expected and what came.
#pragma once

#include <initializer_list>
#include <ostream>
#include <stdexcept>
#include <string>

namespace skytape {

/// Wrong use of a function or a failed check.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Unknown name, key or flag, or a value out of range.
struct UsageError : Error {
  using Error::Error;
};

/// Data or checkpoint missing, foreign or broken.
struct DataError : Error {
  using Error::Error;
};

/// A loss, gradient or activation is not finite.
struct NonFiniteError : Error {
  using Error::Error;
};

/// A part of a message, whatever a stream prints. Its type is erased, so that a message costs its
/// file one call and not a template, which would be a tenth of all compiling.
class Part {
 public:
  Part(const char* text)
      : Part(text,
             [](std::ostream& out, const void* value) { out << static_cast<const char*>(value); }) {
  }
  template <class T> Part(const T& value)
      : Part(&value, [](std::ostream& out, const void* address) {
          out << *static_cast<const T*>(address);
        }) {}

 private:
  friend std::string join(std::initializer_list<Part> parts);
  using Print = void (*)(std::ostream& out, const void* value);
  Part(const void* value, Print print) : value_(value), print_(print) {}

  const void* value_;
  Print print_;
};

/// The parts as a stream prints them, one behind the other.
[[nodiscard]] std::string join(std::initializer_list<Part> parts);
template <class... Parts> [[nodiscard]] std::string join(const Parts&... parts) {
  return join({Part(parts)...});
}

/// Throws Error with the parts joined.
[[noreturn]] void fail(std::initializer_list<Part> parts);

}  // namespace skytape

/// ENSURE(condition, parts…): throws Error with the parts joined unless the condition holds.
#define ENSURE(condition, ...)                        \
  do {                                                \
    if (!(condition)) ::skytape::fail({__VA_ARGS__}); \
  } while (false)
