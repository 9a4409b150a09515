// skytape: trains attention methods, checks their gradients, and asks trained models. Every
// subcommand has a separate file in train/cli/.
#include "train/cli/cli.hpp"
#include "train/cli/program.hpp"

int main(int argc, char** argv) {
  return skytape::train::run_program(
      "skytape",
      "A tape of tensors that trains the attention methods of the Skyformer, Skeinformer "
      "and Linformer papers on the Long Range Arena.",
      [](const skytape::train::Command& program) {
        skytape::train::add_commands(program);
        skytape::train::add_moved_commands(program);
      },
      argc, argv);
}
