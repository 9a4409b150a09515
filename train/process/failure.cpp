#include "train/process/failure.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <new>
#include <system_error>

#include "tensor/core/error.hpp"

namespace skytape::train {

std::string in_words(const std::exception& error) {
  if (dynamic_cast<const Error*>(&error) != nullptr) return error.what();
  if (const auto* file = dynamic_cast<const std::filesystem::filesystem_error*>(&error)) {
    return fmt::format("{}: {}", file->path1().string(), file->code().message());
  }
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) {
    return "out of memory: a shorter max_length or a smaller batch needs less";
  }
  if (const auto* system = dynamic_cast<const std::system_error*>(&error)) {
    return system->code().message();
  }
  return fmt::format("an error that is the program's own, please report it: {}", error.what());
}

int exit_code_of(const std::exception& error) {
  const auto* own = dynamic_cast<const Error*>(&error);
  return own != nullptr ? own->exit_code() : 1;
}

}  // namespace skytape::train
