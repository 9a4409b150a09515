#include "train/cli/program.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>

#include "tensor/core/error.hpp"
#include "train/process/failure.hpp"
#include "train/process/launch.hpp"
#include "train/process/signals.hpp"
#include "train/process/streams.hpp"
#include "train/process/threads.hpp"
#include "train/process/version.hpp"
#include "train/ranks/ranks.hpp"

namespace skytape::train {
namespace {

constexpr double kTurnSeconds = 3;  // ranks that do not know each other yet may start so far apart

/// All ranks of a job have the same command line: one says what is wrong with it. The others stay
/// until it has, as a launcher ends the whole job when one leaves.
int fail(const std::string& program, const std::string& text, int exit_code) {
  const int rank = exit_code == kWrongUsage ? launched().rank : 0;
  if (!waits_to_report(rank, kTurnSeconds)) return exit_code;
  write_stderr(fmt::format("{}: error: {}\n", program, text));
  return exit_code;
}

/// Returns whether everything on standard output has arrived; `reason` says why not, if that is
/// known.
bool output_is_whole(std::string& reason) {
  const bool failed_before = std::ferror(stdout) != 0;
  errno = 0;
  std::cout.flush();
  if (std::fflush(stdout) == 0 && !failed_before && std::cout.good()) return true;
  if (errno != 0) reason = std::strerror(errno);
  return false;
}

/// The word as a shell reads it as one.
std::string shell_word(const std::string& word) {
  constexpr const char* kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=,.:/@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == word.npos) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

}  // namespace

int run_program(const std::string& name, const std::string& idea,
                const std::function<void(const Command&)>& add_commands, int argc, char** argv) {
  open_standard_streams();
  ignore_file_size_signal();
  leave_on_signals();
  std::string problem;
  int code = 0;
  try {
    check_threads();
    code = run_chosen(name, idea, build_facts() + mpi_facts(), add_commands, argc, argv);
  } catch (const Error& error) {
    code = fail(name, error.what(), exit_code_of(error));
  } catch (const std::exception& error) {
    problem = describe(error);
    code = 1;
  }
  if (!output_is_whole(problem)) {
    return fail(name,
                "standard output: cannot write to it" + (problem.empty() ? "" : ": " + problem),
                code == 0 ? 1 : code);
  }
  return problem.empty() ? code : fail(name, problem, code);
}

void add_moved_commands(const Command& program) {
  for (const std::string_view name : kLabCommands) {
    program.add_hidden(std::string(name), [name](const std::vector<std::string>& rest) -> int {
      std::string line = fmt::format("{}-lab {}", program_invocation_name, name);
      for (const std::string& word : rest) line += " " + shell_word(word);
      throw UsageError(
          fmt::format("{} is a command of skytape-lab, which `make lab` builds: {}", name, line));
    });
  }
}

}  // namespace skytape::train
