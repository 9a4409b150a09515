#include "train/cli/command_line.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <type_traits>

#include "tensor/core/error.hpp"
#include "tensor/core/suggest.hpp"
#include "train/config/keys.hpp"
#include "train/process/launch.hpp"

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

/// CLI11's "--steps: 1 required TEXT missing" or "--lr: At Most 1 required but received 2" in words.
std::string wrong_count(const std::string& said) {
  const std::string flag = said.substr(0, said.find(':'));
  if (said.ends_with("missing")) return flag + ": expected a value behind it";
  const std::string received = " required but received ";
  const std::size_t count = said.rfind(received);
  if (count == std::string::npos) return said;
  return flag + ": expected once, got " + said.substr(count + received.size()) + " times";
}

/// A number that is finite, as a validator of CLI11: NaN lies in each of its ranges.
std::string why_not_finite(const std::string& text) {
  const auto number = number_in<double>(text);
  if (!number || std::isfinite(*number)) return {};
  return fmt::format("expected a finite number, got '{}'", text);
}

/// Reads whole numbers as decimal ones, in digits: CLI11 itself takes 010 for 8, 0x10 for 16, and
/// -1 and what is too large for the nearest number that fits.
template <class T> CLI::Option* decimal(CLI::Option* option) {
  const auto rewritten = [](std::string& text) -> std::string {
    if (text.empty()) return {};  // with_value() refuses it
    const auto number = number_in<T>(text);
    if (!number) {
      return fmt::format("expected a {}, got '{}'",
                         std::is_unsigned_v<T> ? "natural number below 2^64" : "whole number",
                         text);
    }
    text = std::to_string(*number);
    return {};
  };
  return option->transform(CLI::Validator(rewritten, ""));
}

/// Refuses an empty value, as an unset variable of a shell leaves it.
CLI::Option* with_value(CLI::Option* option) {
  const auto why = [](const std::string& text) {
    return std::string(text.empty() ? "expected a value, got ''" : "");
  };
  return option->check(CLI::Validator(why, ""));
}

}  // namespace

Flag& Flag::between(std::int64_t low, std::int64_t high) {
  option_->check(CLI::Range(low, high));
  return *this;
}

Flag& Flag::within(double low, double high) {
  option_->check(CLI::Range(low, high));
  return *this;
}

Flag& Flag::required() {
  option_->required();
  return *this;
}

Flag& Flag::excludes(std::initializer_list<const char*> flags) {
  for (const char* flag : flags) option_->excludes(flag);
  return *this;
}

Flag& Flag::needs(const char* flag) {
  option_->needs(flag);
  return *this;
}

Flag& Flag::no_default() {
  option_->default_str("");
  return *this;
}

Command Command::add_command(const std::string& name, const std::string& what) const {
  return Command(app_->add_subcommand(name, what));
}

Flag Command::add_option(const char* name, std::string& value, const std::string& help) const {
  return Flag(with_value(app_->add_option(name, value, help)));
}

Flag Command::add_option(const char* name, std::vector<std::string>& value,
                         const std::string& help) const {
  return Flag(with_value(app_->add_option(name, value, help)));
}

Flag Command::add_option(const char* name, int& value, const std::string& help) const {
  return Flag(decimal<int>(with_value(app_->add_option(name, value, help))));
}

Flag Command::add_option(const char* name, std::int64_t& value, const std::string& help) const {
  return Flag(decimal<std::int64_t>(with_value(app_->add_option(name, value, help))));
}

Flag Command::add_option(const char* name, std::uint64_t& value, const std::string& help) const {
  return Flag(decimal<std::uint64_t>(with_value(app_->add_option(name, value, help))));
}

Flag Command::add_option(const char* name, double& value, const std::string& help) const {
  return Flag(
      with_value(app_->add_option(name, value, help))->check(CLI::Validator(why_not_finite, "")));
}

Flag Command::add_flag(const char* name, bool& value, const std::string& help) const {
  return Flag(app_->add_flag(name, value, help));
}

void Command::runs(std::function<int()> work) const {
  runs_as_rank([name = app_->get_name(), work = std::move(work)] {
    refuse_ranks(name);
    return work();
  });
}

void Command::runs_as_rank(std::function<int()> work) const {
  app_->callback([work = std::move(work)] { throw CLI::RuntimeError(work()); });
}

void Command::add_hidden(const std::string& name,
                         std::function<int(const std::vector<std::string>&)> work) const {
  CLI::App* const command = app_->add_subcommand(name)->group("")->prefix_command();
  command->set_help_flag();
  Command(command).runs_as_rank(
      [command, work = std::move(work)] { return work(command->remaining()); });
}

void Command::group_commands(const std::string& heading) const {
  for (CLI::App* command : app_->get_subcommands(nullptr)) command->group(heading);
}

std::size_t Command::count(const std::string& flag) const { return app_->count(flag); }

int run_chosen(const std::string& name, const std::string& idea, const std::string& version,
               const std::function<void(const Command&)>& add_commands, int argc,
               const char* const* argv) {
  CLI::App program(idea, name);
  program.option_defaults()->always_capture_default();
  program.set_version_flag("--version", version);
  add_commands(Command(&program));
  program.require_subcommand(0, 1);
  try {
    program.parse(argc, argv);
  } catch (const CLI::RuntimeError& done) {  // of runs()
    return done.get_exit_code();
  } catch (const CLI::Success& done) {  // --help and --version
    return program.exit(done);
  } catch (const CLI::ExtrasError&) {
    throw UsageError(unexpected(program));
  } catch (const CLI::ArgumentMismatch& error) {
    throw UsageError(wrong_count(error.what()));
  } catch (const CLI::ParseError& error) {
    throw UsageError(error.what());
  }
  throw UsageError(fmt::format("no command; {} --help lists them", name));
}

std::vector<std::string> names_of(const std::function<void(const Command&)>& add_commands) {
  CLI::App program;
  add_commands(Command(&program));
  std::vector<std::string> names;
  for (const CLI::App* command : program.get_subcommands(nullptr)) {
    names.push_back(command->get_name());
  }
  return names;
}

}  // namespace skytape::train
