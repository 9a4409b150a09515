// What a subcommand declares. CLI11, which reads the arguments, stays behind this interface: one
// file compiles it, and no other has to.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace skytape::train {

/// A declared flag; each call says more about it.
class Flag {
 public:
  explicit Flag(CLI::Option* option) : option_(option) {}
  Flag& show_default();  ///< the variable's value now, in --help
  Flag& required();
  Flag& range(std::int64_t low, std::int64_t high);  ///< both ends included
  Flag& real_range(double low, double high);
  Flag& excludes(const Flag& other);

 private:
  CLI::Option* option_;
};

/// A subcommand. The variables of its flags must live until the program ends, or in what `runs`
/// keeps.
class Command {
 public:
  Command(CLI::App* app, int* exit_code) : app_(app), exit_code_(exit_code) {}

  // A name without dashes is an argument by position; a list takes one value or several each time;
  // a natural number has digits only.
  Flag option(const std::string& name, std::string& value, const std::string& meaning);
  Flag option(const std::string& name, std::vector<std::string>& value, const std::string& meaning);
  Flag option(const std::string& name, int& value, const std::string& meaning);
  Flag option(const std::string& name, std::int64_t& value, const std::string& meaning);
  Flag option(const std::string& name, std::uint64_t& value, const std::string& meaning);
  Flag option(const std::string& name, double& value, const std::string& meaning);
  Flag flag(const std::string& name, bool& value, const std::string& meaning);

  /// Whether the arguments have the flag: known once they are read.
  [[nodiscard]] bool given(const std::string& flag) const;
  /// What the subcommand does; its result is the exit code.
  void runs(std::function<int()> work);

 private:
  CLI::App* app_;
  int* exit_code_;
};

class CommandLine {
 public:
  CommandLine(const std::string& program, const std::string& about, const std::string& version);
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  Command command(const std::string& name, const std::string& about);
  /// Reads the arguments, runs the subcommand that they choose and returns the exit code.
  /// UsageError for arguments that nothing declares, or of the wrong kind.
  [[nodiscard]] int run(int argc, const char* const* argv);

 private:
  std::unique_ptr<CLI::App> app_;
  int exit_code_ = 0;
};

}  // namespace skytape::train
