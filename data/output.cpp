#include "data/output.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tensor/error.hpp"

namespace skytape::data {

OutputFile::OutputFile(const std::filesystem::path& path) : path_(path), temporary_(path) {
  temporary_ += fmt::format(".{}.tmp", ::getpid());
  file_ = std::fopen(temporary_.c_str(), "wbe");
  if (!file_) fail("create it");
}

OutputFile::~OutputFile() {
  if (!file_) return;
  std::fclose(file_);
  ::unlink(temporary_.c_str());
}

void OutputFile::write(std::string_view bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size()) fail("write to it");
}

void OutputFile::commit() {
  if (std::fflush(file_) != 0 || ::fsync(::fileno(file_)) != 0) fail("write to it");
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail("put it in place");
  std::fclose(file_);
  file_ = nullptr;
}

void OutputFile::fail(const char* what) const {
  throw Error(fmt::format("{}: cannot {}: {}", path_.string(), what, std::strerror(errno)));
}

}  // namespace skytape::data
