// The command line of the laboratory: each subcommand declares its flags and what it runs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/cli/command_line.hpp"

namespace skytape::train {

struct InputSource;

/// Adds the subcommand to the program.
void add_bench(CLI::App& program);
void add_lra(CLI::App& program);
void add_report(CLI::App& program);
void add_goldens(CLI::App& program);
void add_approx(CLI::App& program);
void add_spectrum(CLI::App& program);
void add_theory(CLI::App& program);
void add_cost(CLI::App& program);
void add_stability(CLI::App& program);
void add_matrix(CLI::App& program);
void add_mlm_curves(CLI::App& program);
/// Adds all of them.
void add_lab_commands(CLI::App& program);

/// Where a study's queries, keys and values come from: --from fresh, --run DIR, --model FOLDER with
/// --text FILE, or --qkv FILE.
struct SourceFlags {
  std::string from, run, model, text, qkv, checkpoint = "best", data;
  std::uint64_t seed = 42;
  const CLI::App* command = nullptr;  // that declares them

  void declare(CLI::App& command);
  /// Opens it. A fresh model gets the longest of `lengths`. UsageError when two sources are named, or a
  /// flag is given that only another would heed.
  [[nodiscard]] InputSource open(const std::vector<std::int64_t>& lengths) const;
};
inline constexpr std::int64_t kLongestFresh = std::int64_t{1} << 20;  // positions

}  // namespace skytape::train
