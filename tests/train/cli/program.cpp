#include "tests/train/cli/program.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "tests/support/doctest.hpp"
#include "train/cli/program.hpp"
#include "train/formats/safetensors.hpp"

namespace skytape::test {
namespace {

std::string contents(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void redirect(const std::filesystem::path& path, int to) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (file < 0 || ::dup2(file, to) < 0) ::_exit(127);
}

}  // namespace

bool program_or_skip() {
  if (std::getenv("SKYTAPE_PROGRAM") != nullptr) return true;
  MESSAGE("skipped: SKYTAPE_PROGRAM does not say where the program is (make test sets it)");
  return false;
}

std::string program_path() {
  return std::filesystem::absolute(std::getenv("SKYTAPE_PROGRAM")).string();
}

std::string program_of(const std::string& command) {
  return std::ranges::count(train::kLabCommands, command) > 0 ? "skytape-lab" : "skytape";
}

Program::Program(const std::filesystem::path& scratch, const std::vector<std::string>& arguments,
                 const Place& place)
    : out_(place.output.empty() ? scratch / "stdout.txt" : place.output),
      err_(scratch / "stderr.txt") {
  std::vector<std::string> words = place.launcher;
  std::filesystem::remove(err_);  // an earlier program's
  std::string program = place.program.empty() ? program_path() : place.program;
  // A bundle for GPUs has skytape-lab alone, which has all commands.
  const bool lab = !arguments.empty() && program_of(arguments.front()) == "skytape-lab";
  if (place.program.empty() && lab && !program.ends_with("-lab")) program += "-lab";
  words.push_back(std::move(program));
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  process_ = ::fork();
  REQUIRE(process_ >= 0);
  if (process_ == 0) {
    redirect(out_, STDOUT_FILENO);
    redirect(err_, STDERR_FILENO);
    if (place.largest_file > 0) {
      const rlimit limit{place.largest_file, place.largest_file};
      ::setrlimit(RLIMIT_FSIZE, &limit);
    }
    if (!place.folder.empty() && ::chdir(place.folder.c_str()) != 0) ::_exit(127);
    ::execvp(argv[0], argv.data());
    ::_exit(127);
  }
}

void Program::kill(int signal) const { ::kill(process_, signal); }

bool Program::running() {
  if (!reaped_ && ::waitpid(process_, &status_, WNOHANG) == process_) reaped_ = true;
  return !reaped_;
}

std::string Program::said() const { return contents(err_); }

Finished Program::wait() {
  if (!reaped_) {
    REQUIRE(::waitpid(process_, &status_, 0) == process_);
    reaped_ = true;
  }
  const int code = WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
  const bool file = std::filesystem::is_regular_file(out_);
  return {code, file ? contents(out_) : "", contents(err_), !WIFEXITED(status_)};
}

Finished run_program(const std::filesystem::path& scratch,
                     const std::vector<std::string>& arguments, const Place& place) {
  return Program(scratch, arguments, place).wait();
}

bool same_tensors(const std::filesystem::path& a, const std::filesystem::path& b) {
  const train::SafetensorsFile x = train::read_safetensors(a);
  const train::SafetensorsFile y = train::read_safetensors(b);
  if (x.tensors.size() != y.tensors.size()) return false;
  for (const auto& [name, tensor] : x.tensors) {
    const Tensor* other = y.find(name);
    if (other == nullptr || other->to_vector() != tensor.to_vector()) return false;
  }
  return true;
}

}  // namespace skytape::test
