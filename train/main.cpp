// skytape: trains attention methods, checks their gradients, and asks trained models. Every
// subcommand has a separate file in train/cli/.
#include "train/cli/cli.hpp"
#include "train/cli/program.hpp"

int main(int argc, char** argv) {
  return skytape::train::run_program(
      "skytape",
      "Trains attention methods on the Long Range Arena and on your own texts, and checks their "
      "gradients.",
      [](const skytape::train::Command& program) {
        skytape::train::add_commands(program);
        skytape::train::add_moved_commands(program);
      },
      argc, argv);
}
