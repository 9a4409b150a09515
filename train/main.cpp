// skytape: trains, checks and measures attention methods. This file turns arguments into a call and
// errors into one line and an exit code; every subcommand has a file of its own in train/cli/.
#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <string>

#include "tensor/core/error.hpp"
#include "train/cli/cli.hpp"
#include "train/process/failure.hpp"
#include "train/process/launch.hpp"
#include "train/process/signals.hpp"
#include "train/process/streams.hpp"
#include "train/process/version.hpp"
#include "train/ranks/ranks.hpp"

namespace {

constexpr int kWrongUsage = 2;
constexpr double kTurnSeconds = 3;  // ranks that do not know each other yet may start so far apart

/// All ranks of a job have the same command line: one says what is wrong with it. The others stay
/// until it has, as a launcher ends the whole job when one leaves.
int fail(const std::string& text, int exit_code) {
  namespace train = skytape::train;
  const int rank = exit_code == kWrongUsage ? train::launched().rank : 0;
  if (!train::waits_to_report(rank, kTurnSeconds)) return exit_code;
  train::write_stderr(fmt::format("skytape: error: {}\n", text));
  return exit_code;
}

/// Whether everything on standard output has arrived; `reason` says why not, if that is known.
bool output_is_whole(std::string& reason) {
  const bool failed_before = std::ferror(stdout) != 0;
  errno = 0;
  std::cout.flush();
  if (std::fflush(stdout) == 0 && !failed_before && std::cout.good()) return true;
  if (errno != 0) reason = std::strerror(errno);
  return false;
}

int run(int argc, char** argv) {
  skytape::train::check_threads();
  CLI::App program(
      "A tape of tensors that trains the attention methods of the Skyformer, Skeinformer "
      "and Linformer papers on the Long Range Arena.",
      "skytape");
  program.option_defaults()->always_capture_default();
  program.set_version_flag("--version",
                           skytape::train::build_facts() + skytape::train::mpi_facts());
  skytape::train::add_train(program);
  skytape::train::add_pretrain(program);
  skytape::train::add_lra(program);
  skytape::train::add_report(program);
  skytape::train::add_eval(program);
  skytape::train::add_predict(program);
  skytape::train::add_encode(program);
  skytape::train::add_import(program);
  skytape::train::add_data(program);
  skytape::train::add_gradcheck(program);
  skytape::train::add_goldens(program);
  skytape::train::add_bench(program);
  skytape::train::add_approx(program);
  skytape::train::add_spectrum(program);
  skytape::train::add_theory(program);
  skytape::train::add_cost(program);
  skytape::train::add_stability(program);
  skytape::train::add_matrix(program);
  skytape::train::add_mlm_curves(program);
  skytape::train::add_info(program);
  skytape::train::add_tape(program);
  return skytape::train::run_chosen(program, argc, argv);
}

}  // namespace

int main(int argc, char** argv) {
  skytape::train::open_standard_streams();
  skytape::train::ignore_file_size_signal();
  skytape::train::leave_on_signals();
  std::string problem;
  int code = 0;
  try {
    code = run(argc, argv);
  } catch (const skytape::Error& error) {
    code = fail(error.what(), error.exit_code());
  } catch (const std::exception& error) {
    problem = skytape::train::describe(error);
    code = 1;
  }
  if (!output_is_whole(problem)) {
    return fail("standard output: cannot write to it" + (problem.empty() ? "" : ": " + problem),
                code == 0 ? 1 : code);
  }
  return problem.empty() ? code : fail(problem, code);
}
