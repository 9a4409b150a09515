// Writing files for other programs: whole or not at all.
#pragma once

#include <cstdio>
#include <filesystem>
#include <span>
#include <string_view>

namespace skytape::data {

/// Creates the folder and those above it, unless they are there. Error with the system's reason.
void make_folder(const std::filesystem::path& path);

/// A file that appears under its name when commit() is called and is gone if it never is. Behind a
/// symbolic link it is the link's target; a pipe, a device or a stream is written to directly.
/// Error naming the file if the disk is full or the folder cannot be written.
class OutputFile {
 public:
  explicit OutputFile(const std::filesystem::path& path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(std::string_view bytes);
  /// Waits until the bytes are on the disk; commit() does, too. For files that appear together.
  void sync();
  void commit();

 private:
  std::filesystem::path path_, temporary_;  // temporary_ is empty where path_ is written to
  std::FILE* file_;
};

/// The Error of a file that cannot be written there; for work that takes long before it is.
void ensure_can_write(const std::filesystem::path& path);

/// Such a file, of these bytes.
void write_file(const std::filesystem::path& path, std::string_view bytes);

/// A folder of files that appears under its name, with all of them, when commit() is called and is
/// gone if it never is. UsageError if there is something under that name already; Error naming the
/// file if the disk is full or the folder cannot be written.
class OutputFolder {
 public:
  explicit OutputFolder(const std::filesystem::path& path);
  ~OutputFolder();
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  /// Writes the file `name`, relative to the folder, and the folders above it.
  void write(const std::filesystem::path& name, std::string_view bytes);
  /// Waits until all files are on the disk, then gives the folder its name.
  void commit();

 private:
  std::filesystem::path path_, temporary_;
};

}  // namespace skytape::data
