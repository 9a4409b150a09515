// This program, started again as a child process.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace skytape::train {

/// A running program, which is no rank of its parent's job. Signals of the terminal do not reach
/// it: its parent passes them on. When the parent dies, it gets SIGTERM, so that no run is left
/// behind.
class ChildProcess {
 public:
  /// Starts this program with the arguments; what it prints is appended to `log`. Error if that
  /// fails.
  ChildProcess(const std::vector<std::string>& arguments, const std::filesystem::path& log);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  /// Its exit code, or 128 + signal; nothing while it runs.
  [[nodiscard]] std::optional<int> exit_code();
  void signal(int number) const;

 private:
  pid_t process_ = -1;
  std::optional<int> exit_code_;
};

}  // namespace skytape::train
