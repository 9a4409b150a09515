// Writing files for other programs: whole or not at all.
#pragma once

#include <cstdio>
#include <filesystem>
#include <span>
#include <string_view>

namespace skytape::data {

/// A file that appears under its name when commit() is called and is gone if it never is.
/// Error naming the file if the disk is full or the folder cannot be written.
class OutputFile {
 public:
  explicit OutputFile(const std::filesystem::path& path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(std::string_view bytes);
  void commit();

 private:
  [[noreturn]] void fail(const char* what) const;

  std::filesystem::path path_, temporary_;
  std::FILE* file_;
};

}  // namespace skytape::data
