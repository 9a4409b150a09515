// Commands and their flags, by which the command line is declared. CLI11 reads them; its header
// takes longer to compile than most of our files, so that command_line.cpp alone includes it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace skytape::train {

/// A flag or an argument of a command, while it is declared.
class Flag {
 public:
  explicit Flag(CLI::Option* option) : option_(option) {}

  /// The value must be between them, both included.
  Flag& between(std::int64_t low, std::int64_t high);
  /// As between(), for numbers with fractions.
  Flag& within(double low, double high);
  Flag& required();
  /// The command refuses it together with one of these.
  Flag& excludes(std::initializer_list<const char*> flags);
  /// The command refuses it without that one.
  Flag& needs(const char* flag);
  /// Lets --help show no default value.
  Flag& no_default();

 private:
  CLI::Option* option_;
};

/// A command, or the program itself. A handle: copying is free.
class Command {
 public:
  Command() = default;
  explicit Command(CLI::App* app) : app_(app) {}

  [[nodiscard]] Command add_command(const std::string& name, const std::string& what) const;
  /// The variable has the default value, and the user's after parsing; it must live in what runs()
  /// keeps.
  Flag add_option(const char* name, std::string& value, const std::string& help) const;
  Flag add_option(const char* name, std::vector<std::string>& value, const std::string& help) const;
  Flag add_option(const char* name, int& value, const std::string& help) const;
  Flag add_option(const char* name, std::int64_t& value, const std::string& help) const;
  Flag add_option(const char* name, std::uint64_t& value, const std::string& help) const;
  Flag add_option(const char* name, double& value, const std::string& help) const;
  Flag add_flag(const char* name, bool& value, const std::string& help) const;
  /// Sets the function that does the command's work once its arguments are read; its result is the
  /// program's exit code. Refused where a launcher started several processes.
  void runs(std::function<int()> work) const;
  /// Sets that function for a command that may be one of several ranks: it is not refused.
  void runs_as_rank(std::function<int()> work) const;

  /// A command that --help does not name and that takes whatever follows it.
  void add_hidden(const std::string& name,
                  std::function<int(const std::vector<std::string>& rest)> work) const;
  /// The heading of --help under which the commands that are there stand.
  void group_commands(const std::string& heading) const;

  /// Returns how often the flag is on the command line.
  [[nodiscard]] std::size_t count(const std::string& flag) const;

 private:
  CLI::App* app_ = nullptr;
};

/// Reads the arguments, runs the command that they choose of those that `add_commands` adds, and
/// returns the exit code. `idea` is what --help begins with, `version` what --version prints.
/// UsageError for arguments that nothing declares, or of the wrong kind.
[[nodiscard]] int run_chosen(const std::string& program, const std::string& idea,
                             const std::string& version,
                             const std::function<void(const Command&)>& add_commands, int argc,
                             const char* const* argv);

/// Names of the commands that a function adds.
[[nodiscard]] std::vector<std::string> names_of(
    const std::function<void(const Command&)>& add_commands);

}  // namespace skytape::train
