#include "train/cli/command_line.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>

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

Flag& Flag::show_default() {
  option_->capture_default_str();
  return *this;
}

Flag& Flag::required() {
  option_->required();
  return *this;
}

Flag& Flag::range(std::int64_t low, std::int64_t high) {
  option_->check(CLI::Range(low, high));
  return *this;
}

Flag& Flag::real_range(double low, double high) {
  option_->check(CLI::Range(low, high));
  return *this;
}

Flag& Flag::excludes(const Flag& other) {
  option_->excludes(other.option_);
  return *this;
}

Flag Command::option(const std::string& name, std::string& value, const std::string& meaning) {
  return Flag(app_->add_option(name, value, meaning));
}

Flag Command::option(const std::string& name, std::vector<std::string>& value,
                     const std::string& meaning) {
  return Flag(app_->add_option(name, value, meaning));
}

Flag Command::option(const std::string& name, int& value, const std::string& meaning) {
  return Flag(app_->add_option(name, value, meaning));
}

Flag Command::option(const std::string& name, std::int64_t& value, const std::string& meaning) {
  return Flag(app_->add_option(name, value, meaning));
}

Flag Command::option(const std::string& name, std::uint64_t& value, const std::string& meaning) {
  // CLI11 takes -1 for 2^64 - 1, and what is larger for the largest.
  return Flag(app_->add_option(name, value, meaning)->check([](const std::string& text) {
    std::uint64_t number = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, number);
    if (error == std::errc{} && stop == end) return std::string();
    return fmt::format("expected a natural number below 2^64, got '{}'", text);
  }));
}

Flag Command::option(const std::string& name, double& value, const std::string& meaning) {
  return Flag(app_->add_option(name, value, meaning));
}

Flag Command::flag(const std::string& name, bool& value, const std::string& meaning) {
  return Flag(app_->add_flag(name, value, meaning));
}

bool Command::given(const std::string& flag) const { return app_->count(flag) > 0; }

void Command::runs(std::function<int()> work) {
  app_->callback([work = std::move(work), exit_code = exit_code_] { *exit_code = work(); });
}

CommandLine::CommandLine(const std::string& program, const std::string& about,
                         const std::string& version)
    : app_(std::make_unique<CLI::App>(about, program)) {
  app_->set_version_flag("--version", version);
  app_->require_subcommand(0, 1);
}

CommandLine::~CommandLine() = default;

Command CommandLine::command(const std::string& name, const std::string& about) {
  return {app_->add_subcommand(name, about), &exit_code_};
}

int CommandLine::run(int argc, const char* const* argv) {
  try {
    app_->parse(argc, argv);
  } catch (const CLI::Success& done) {  // --help and --version
    return app_->exit(done);
  } catch (const CLI::ExtrasError&) {
    throw UsageError(unexpected(*app_));
  } catch (const CLI::ParseError& error) {
    throw UsageError(error.what());
  }
  if (app_->get_subcommands().empty()) {
    throw UsageError(fmt::format("no command; {} --help lists them", app_->get_name()));
  }
  return exit_code_;
}

}  // namespace skytape::train
