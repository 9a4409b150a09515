#include "data/files/output.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tensor/core/error.hpp"

namespace skytape::data {
namespace {

[[noreturn]] void fail_at(const std::filesystem::path& path, const char* what) {
  throw Error(fmt::format("{}: cannot {}: {}", path.string(), what, std::strerror(errno)));
}

namespace fs = std::filesystem;

/// Returns whether a path names an open stream of this process, such as /proc/self/fd/1.
bool is_open_stream(const fs::path& path) { return path.string().starts_with("/proc/"); }

/// Returns the file at the end of symbolic links, which stay; a stream's name is its end.
fs::path target_of(fs::path path) {
  constexpr int kMostLinks = 40;  // as the system follows
  std::error_code error;
  for (int i = 0; i < kMostLinks && !is_open_stream(path) && fs::is_symlink(path, error); ++i) {
    const fs::path to = fs::read_symlink(path, error);
    if (error) break;
    path = to.is_absolute() ? to : path.parent_path() / to;
  }
  return path;
}

/// Returns whether bytes go into what is there: a stream, a pipe or a device, which no file may
/// replace.
bool is_written_to(const fs::path& path) {
  if (is_open_stream(path)) return true;
  std::error_code error;
  return fs::is_fifo(path, error) || fs::is_character_file(path, error) ||
         fs::is_socket(path, error) || fs::is_block_file(path, error);
}

}  // namespace

void make_folder(const std::filesystem::path& path) {
  std::error_code failure;
  std::filesystem::create_directories(path, failure);
  if (failure)
    throw Error(fmt::format("{}: cannot create it: {}", path.string(), failure.message()));
}

void ensure_can_write(const std::filesystem::path& path) {
  const fs::path target = target_of(path);
  if (is_written_to(target)) return;
  std::error_code absent;
  if (fs::is_directory(target, absent)) {
    errno = EISDIR;
    fail_at(target, "create it");
  }
  const OutputFile gone_again(target);
}

OutputFile::OutputFile(const std::filesystem::path& path) : path_(target_of(path)) {
  if (!is_written_to(path_)) {
    temporary_ = path_;
    temporary_ += fmt::format(".{}.tmp", ::getpid());
  }
  file_ = std::fopen(temporary_.empty() ? path_.c_str() : temporary_.c_str(),
                     temporary_.empty() ? "abe" : "wbe");
  if (!file_) fail_at(path_, "create it");
}

OutputFile::~OutputFile() {
  if (!file_) return;
  std::fclose(file_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void OutputFile::write(std::string_view bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size())
    fail_at(path_, "write to it");
}

void OutputFile::sync() {
  if (std::fflush(file_) != 0) fail_at(path_, "write to it");
  if (!temporary_.empty() && ::fsync(::fileno(file_)) != 0) fail_at(path_, "write to it");
}

void OutputFile::commit() {
  sync();
  if (!temporary_.empty() && ::rename(temporary_.c_str(), path_.c_str()) != 0)
    fail_at(path_, "put it in place");
  std::fclose(file_);
  file_ = nullptr;
}

void write_file(const std::filesystem::path& path, std::string_view bytes) {
  OutputFile file(path);
  file.write(bytes);
  file.commit();
}

OutputFolder::OutputFolder(const std::filesystem::path& path) : path_(path) {
  if (std::filesystem::exists(path_)) {
    throw UsageError(path_.string() + ": is there already; remove it or name another folder");
  }
  temporary_ =
      path_.parent_path() / fmt::format(".{}.{}.tmp", path_.filename().string(), ::getpid());
  make_folder(temporary_);
}

OutputFolder::~OutputFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(temporary_, ignored);
}

void OutputFolder::write(const std::filesystem::path& name, std::string_view bytes) {
  const std::filesystem::path path = temporary_ / name;
  make_folder(path.parent_path());
  std::FILE* const file = std::fopen(path.c_str(), "wbe");
  if (!file) fail_at(path_ / name, "create it");
  const bool written = std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
  if (std::fclose(file) != 0 || !written) fail_at(path_ / name, "write to it");
}

void OutputFolder::commit() {
  const int folder = ::open(temporary_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool synced = folder >= 0 && ::syncfs(folder) == 0;  // together: one by one takes an hour
  if (folder >= 0) ::close(folder);
  if (!synced) fail_at(path_, "write to it");
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail_at(path_, "put it in place");
}

}  // namespace skytape::data
