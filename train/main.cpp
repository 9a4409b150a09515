// skytape: trains, checks and measures attention methods. This file turns arguments into a call and
// errors into one line and an exit code; every subcommand has a file of its own in train/cli/.
#include <fmt/format.h>

#include <cstdio>
#include <string>

#include "tensor/core/error.hpp"
#include "train/cli/cli.hpp"
#include "train/process/signals.hpp"
#include "train/process/version.hpp"

namespace {

int fail(const std::string& text, int exit_code) {
  fmt::print(stderr, "skytape: error: {}\n", text);
  return exit_code;
}

int run(int argc, char** argv) {
  skytape::train::CommandLine program(
      "skytape",
      "A tape of tensors that trains the attention methods of the Skyformer, Skeinformer "
      "and Linformer papers on the Long Range Arena.",
      skytape::train::build_facts());
  skytape::train::add_train(program);
  skytape::train::add_pretrain(program);
  skytape::train::add_lra(program);
  skytape::train::add_report(program);
  skytape::train::add_eval(program);
  skytape::train::add_predict(program);
  skytape::train::add_data(program);
  skytape::train::add_gradcheck(program);
  skytape::train::add_goldens(program);
  skytape::train::add_bench(program);
  skytape::train::add_approx(program);
  skytape::train::add_spectrum(program);
  skytape::train::add_theory(program);
  skytape::train::add_cost(program);
  skytape::train::add_stability(program);
  skytape::train::add_info(program);
  skytape::train::add_tape(program);
  return program.run(argc, argv);
}

}  // namespace

int main(int argc, char** argv) {
  skytape::train::ignore_file_size_signal();
  try {
    return run(argc, argv);
  } catch (const skytape::Error& error) {
    return fail(error.what(), error.exit_code());
  } catch (const std::exception& error) {
    return fail(error.what(), 1);
  }
}
