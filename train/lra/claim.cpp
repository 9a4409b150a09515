#include "train/lra/claim.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "data/files/output.hpp"
#include "tensor/core/error.hpp"
#include "train/process/launch.hpp"

namespace skytape::train {
namespace {

namespace fs = std::filesystem;

/// The locked file, or -1 while another process has it.
int locked(const fs::path& path) {
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (file >= 0 && ::flock(file, LOCK_EX | LOCK_NB) == 0) return file;
  const int problem = errno;
  if (file >= 0) ::close(file);
  if (file >= 0 && problem == EWOULDBLOCK) return -1;
  throw Error(fmt::format("{}: cannot lock it: {}", path.string(), std::strerror(problem)));
}

fs::path failure_file(const fs::path& folder) { return folder / ".failed"; }

}  // namespace

std::optional<Claim> Claim::take(const fs::path& folder) {
  data::make_folder(folder);
  Claim claim(locked(folder / ".claim"));
  if (claim.file_ < 0) return {};
  // The run of an owner that died may still be writing its last checkpoint.
  const int run = locked(folder / ".lock");
  if (run < 0) return {};
  ::close(run);
  return claim;
}

Claim::~Claim() {
  if (file_ >= 0) ::close(file_);
}

Claim::Claim(Claim&& other) noexcept : file_(std::exchange(other.file_, -1)) {}

Claim& Claim::operator=(Claim&& other) noexcept {
  std::swap(file_, other.file_);
  return *this;
}

// The job's name, then what went wrong.
void say_failure(const fs::path& folder, const std::string& why) {
  const std::string job = job_name();
  if (job.empty()) return;
  data::OutputFile file(failure_file(folder));
  file.write(job + "\n" + why);
  file.commit();
}

std::optional<std::string> failure_said(const fs::path& folder) {
  std::ifstream in(failure_file(folder));
  std::string job, why;
  if (!std::getline(in, job) || job != job_name()) return {};
  std::getline(in, why, '\0');
  return why;
}

}  // namespace skytape::train
