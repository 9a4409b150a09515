// skytape-lab: measures attention methods and compares them with the papers. Every subcommand has a
// file of its own in train/lab/cli/. It has skytape's as well: a sweep starts itself for each
// training.
#include "train/cli/cli.hpp"
#include "train/cli/program.hpp"
#include "train/lab/cli/lab_cli.hpp"

int main(int argc, char** argv) {
  return skytape::train::run_program(
      "skytape-lab",
      "The laboratory of skytape: benchmarks, the papers' studies, grids of runs and reference "
      "vectors.",
      [](const skytape::train::Command& program) {
        skytape::train::add_lab_commands(program);
        program.group_commands("Laboratory");
        skytape::train::add_commands(program);
      },
      argc, argv);
}
