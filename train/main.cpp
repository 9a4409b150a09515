// skytape: trains, checks and measures attention methods. This file turns arguments into a call and
// errors into one line and an exit code; every subcommand has a file of its own in train/cli/.
#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <vector>

#include "tensor/core/error.hpp"
#include "tensor/core/suggest.hpp"
#include "train/cli/cli.hpp"
#include "train/process/signals.hpp"
#include "train/process/version.hpp"

namespace {

using skytape::nearest;

constexpr int kUsage = 2;  // exit code of wrong usage

int fail(const std::string& text, int exit_code) {
  fmt::print(stderr, "skytape: error: {}\n", text);
  return exit_code;
}

/// The subcommand that the arguments chose, or the program itself.
const CLI::App& chosen(const CLI::App& app) {
  const std::vector<CLI::App*> commands = app.get_subcommands();
  return commands.empty() ? app : *commands.front();
}

/// "unknown flag --atention of train (did you mean --attention?)" for the first argument left over.
std::string unexpected(const CLI::App& app) {
  const std::vector<std::string> extras = app.remaining(true);
  const std::string word = extras.empty() ? "" : extras.front();
  const CLI::App& command = chosen(app);
  std::vector<std::string> known;
  if (word.starts_with("-")) {
    for (const CLI::Option* option : command.get_options()) known.push_back(option->get_name());
  } else {
    for (const CLI::App* sub : app.get_subcommands(nullptr)) known.push_back(sub->get_name());
  }
  std::string text =
      word.starts_with("-")
          ? fmt::format("unknown flag {} of {}", word.substr(0, word.find('=')), command.get_name())
          : fmt::format("unknown command or argument '{}'", word);
  const std::string near = nearest(word.substr(0, word.find('=')), known);
  if (!near.empty()) text += fmt::format(" (did you mean {}?)", near);
  return text + fmt::format("; {} --help lists them",
                            &command == &app ? "skytape" : "skytape " + command.get_name());
}

int run(int argc, char** argv) {
  CLI::App app(
      "A tape of tensors that trains the attention methods of the Skyformer, Skeinformer "
      "and Linformer papers on the Long Range Arena.",
      "skytape");
  int exit_code = 0;
  app.set_version_flag("--version", skytape::train::build_facts());
  app.require_subcommand(0, 1);
  skytape::train::add_train(app, exit_code);
  skytape::train::add_pretrain(app, exit_code);
  skytape::train::add_lra(app, exit_code);
  skytape::train::add_report(app, exit_code);
  skytape::train::add_eval(app, exit_code);
  skytape::train::add_predict(app, exit_code);
  skytape::train::add_data(app, exit_code);
  skytape::train::add_gradcheck(app, exit_code);
  skytape::train::add_goldens(app, exit_code);
  skytape::train::add_bench(app, exit_code);
  skytape::train::add_approx(app, exit_code);
  skytape::train::add_spectrum(app, exit_code);
  skytape::train::add_theory(app, exit_code);
  skytape::train::add_cost(app, exit_code);
  skytape::train::add_stability(app, exit_code);
  skytape::train::add_info(app, exit_code);
  skytape::train::add_tape(app, exit_code);
  try {
    app.parse(argc, argv);
    if (app.get_subcommands().empty()) return fail("no command; skytape --help lists them", kUsage);
  } catch (const CLI::Success& done) {  // --help and --version
    return app.exit(done);
  } catch (const CLI::ExtrasError&) {
    return fail(unexpected(app), kUsage);
  } catch (const CLI::ParseError& error) {
    return fail(error.what(), kUsage);
  }
  return exit_code;
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
