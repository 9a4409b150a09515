#include "train/lab/lra/child_process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "tensor/core/error.hpp"
#include "train/process/launch.hpp"

namespace skytape::train {

ChildProcess::ChildProcess(const std::vector<std::string>& arguments,
                           const std::filesystem::path& log) {
  std::vector<char*> argv = {const_cast<char*>("skytape-lab")};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  std::vector<std::string> environment = environment_alone();
  std::vector<char*> variables;
  for (std::string& variable : environment) variables.push_back(variable.data());
  variables.push_back(nullptr);
  const int out = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (out < 0) {
    throw Error(fmt::format("{}: cannot write to it: {}", log.string(), std::strerror(errno)));
  }
  const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  const pid_t parent = ::getpid();
  process_ = ::fork();
  if (process_ == 0) {  // only what is safe between fork and exec
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != parent) ::_exit(127);  // it died before the line above
    std::signal(SIGPIPE, SIG_DFL);
    ::dup2(nothing, STDIN_FILENO);
    ::dup2(out, STDOUT_FILENO);
    ::dup2(out, STDERR_FILENO);
    ::execve("/proc/self/exe", argv.data(), variables.data());
    ::_exit(127);
  }
  const int problem = errno;
  ::close(out);
  if (nothing >= 0) ::close(nothing);
  if (process_ < 0) throw Error(fmt::format("cannot start a process: {}", std::strerror(problem)));
}

ChildProcess::~ChildProcess() {
  if (process_ < 0 || exit_code()) return;
  signal(SIGTERM);
  ::waitpid(process_, nullptr, 0);
}

std::optional<int> ChildProcess::exit_code() {
  int status = 0;
  if (!exit_code_ && ::waitpid(process_, &status, WNOHANG) == process_) {
    exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  return exit_code_;
}

void ChildProcess::signal(int number) const { ::kill(process_, number); }

}  // namespace skytape::train
