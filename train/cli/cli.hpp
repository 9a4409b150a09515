// The command line: each subcommand declares its flags and what it runs.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "attention/options.hpp"
#include "data/files/columns.hpp"
#include "train/cli/command_line.hpp"
#include "train/config/run_config.hpp"

namespace skytape::train {

/// Adds the subcommand to the program.
void add_train(const Command& program);
void add_pretrain(const Command& program);
void add_eval(const Command& program);
void add_predict(const Command& program);
void add_data(const Command& program);
void add_gradcheck(const Command& program);
void add_info(const Command& program);
void add_tape(const Command& program);
void add_import(const Command& program);
void add_encode(const Command& program);
/// Adds all of them.
void add_commands(const Command& program);

/// Help of --recipe: the names of the recipes, and what else it takes.
[[nodiscard]] std::string recipe_help();

/// Flags that choose a run, as `train` and `eval --weights` share them.
struct RunFlags {
  std::string task = "listops", attention = "skyformer", recipe = "skytape", device = "auto";
  std::string data = "datasets";
  std::uint64_t seed = 42;
  int threads = 0;
  std::vector<std::string> set;  // "key=value"
  std::string steps, batch, lr, features, precision;
  std::set<std::string> given;  // Choices::given

  void declare(const Command& command);
  /// Notes which flags are given; after parsing. Where the recipe is a run's config.json, task and
  /// method are that run's unless given.
  void note_given(const Command& command);
  /// Sets the threads and puts the choices together; resolve() judges them. UsageError for a
  /// malformed --set or an unknown device.
  [[nodiscard]] Choices choices() const;
};

/// Declares the flags for the columns of custom data, which `data` and `predict` share.
void declare_columns(const Command& command, data::ColumnNames& columns, std::string& delimiter);

/// --draws of what answers: an answer is the mean of so many draws of the method.
inline constexpr const char* kDrawsHelp =
    "draws of a random method that an answer is the mean of; more than one: says how much they "
    "matter";
inline constexpr std::int64_t kMostDraws = 1000;

/// "a,b,c" as a list; empty parts are a UsageError naming `flag`.
[[nodiscard]] std::vector<std::string> split_list(const std::string& flag, const std::string& text);
/// The same for natural numbers in [low, high].
[[nodiscard]] std::vector<std::int64_t> number_list(const std::string& flag,
                                                    const std::string& text, std::int64_t low,
                                                    std::int64_t high);
/// Names of tasks: a list, or those of the benchmark for "all". UsageError if unknown.
[[nodiscard]] std::vector<std::string> task_list(const std::string& text);
/// Names of attention methods: a list, or all of the registry for "all". UsageError if unknown.
[[nodiscard]] std::vector<std::string> method_list(const std::string& text);
/// "<method>.<option>=value" entries of --set, by method. UsageError for another form.
[[nodiscard]] std::map<std::string, attention::OptionValues> method_options(
    const std::vector<std::string>& set);

}  // namespace skytape::train
