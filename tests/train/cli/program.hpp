// Runs the programs themselves, as a user would. SKYTAPE_PROGRAM says where skytape is; skytape-lab
// is next to it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/contains.hpp"  // what programs say is looked for by all who run them

namespace skytape::test {

/// True when SKYTAPE_PROGRAM names a program; otherwise says that the case is skipped.
[[nodiscard]] bool program_or_skip();
/// Its absolute path.
[[nodiscard]] std::string program_path();
/// The program that runs the command here: "skytape", or "skytape-lab" for the laboratory's.
[[nodiscard]] std::string program_of(const std::string& command);

struct Finished {
  int code = 0;  // exit code, or 128 + signal
  std::string out, err;
  bool killed = false;  // by a signal that it did not handle
};

/// The circumstances of a program's run, if they differ from the test's.
struct Place {
  std::uint64_t largest_file = 0;     // > 0: of any file that it writes, bytes: as on a full disk
  std::filesystem::path folder = {};  // it runs in
  std::filesystem::path output = {};  // its standard output, instead of a file in `scratch`
  std::vector<std::string> launcher = {};  // starts it, with arguments: mpirun
  std::string program = {};                // its path; empty: of the one that has the command
};

/// A running program; its output goes to files in `scratch`.
class Program {
 public:
  Program(const std::filesystem::path& scratch, const std::vector<std::string>& arguments,
          const Place& place = {});

  void kill(int signal) const;
  [[nodiscard]] pid_t id() const { return process_; }
  [[nodiscard]] bool running();
  /// Returns its standard error so far.
  [[nodiscard]] std::string said() const;
  /// Waits for its end.
  Finished wait();

 private:
  std::filesystem::path out_, err_;
  pid_t process_;
  bool reaped_ = false;
  int status_ = 0;
};

/// Starts and waits.
[[nodiscard]] Finished run_program(const std::filesystem::path& scratch,
                                   const std::vector<std::string>& arguments,
                                   const Place& place = {});

/// Returns whether two checkpoints hold the same tensors, bit for bit.
[[nodiscard]] bool same_tensors(const std::filesystem::path& a, const std::filesystem::path& b);

}  // namespace skytape::test
