#include "train/cli/command_line.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "tensor/core/error.hpp"
#include "tensor/core/suggest.hpp"
#include "train/config/keys.hpp"

namespace skytape::train {
namespace {

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
  std::string near = fmt::format("--{}", key_called(word.substr(0, word.find('='))));
  if (std::find(known.begin(), known.end(), near) == known.end()) {
    near = nearest(word.substr(0, word.find('=')), known);
  }
  if (!near.empty()) text += fmt::format(" (did you mean {}?)", near);
  return text +
         fmt::format("; {} --help lists them",
                     &command == &app ? app.get_name() : app.get_name() + " " + command.get_name());
}

}  // namespace

CLI::Validator natural() {
  const auto problem = [](const std::string& text) {
    if (number_in<std::uint64_t>(text)) return std::string();
    return fmt::format("expected a natural number below 2^64, got '{}'", text);
  };
  return {problem, ""};
}

void runs(CLI::App& command, std::function<int()> work) {
  command.callback([work = std::move(work)] { throw CLI::RuntimeError(work()); });
}

int run_chosen(CLI::App& program, int argc, const char* const* argv) {
  program.require_subcommand(0, 1);
  try {
    program.parse(argc, argv);
  } catch (const CLI::RuntimeError& done) {  // of runs()
    return done.get_exit_code();
  } catch (const CLI::Success& done) {  // --help and --version
    return program.exit(done);
  } catch (const CLI::ExtrasError&) {
    throw UsageError(unexpected(program));
  } catch (const CLI::ParseError& error) {
    throw UsageError(error.what());
  }
  throw UsageError(fmt::format("no command; {} --help lists them", program.get_name()));
}

}  // namespace skytape::train
