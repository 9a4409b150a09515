// The command line of the laboratory: each subcommand declares its flags and what it runs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/cli/command_line.hpp"

namespace skytape::train {

struct InputSource;

/// Adds the subcommand to the program.
void add_bench(const Command& program);
void add_lra(const Command& program);
void add_report(const Command& program);
void add_goldens(const Command& program);
void add_approx(const Command& program);
void add_spectrum(const Command& program);
void add_theory(const Command& program);
void add_cost(const Command& program);
void add_stability(const Command& program);
void add_matrix(const Command& program);
void add_mlm_curves(const Command& program);
/// Adds all of them.
void add_lab_commands(const Command& program);

/// --out of a study that has pictures.
inline constexpr const char* kPicturesHelp =
    "folder for JSON and tables; train/report/draw.py draws its pictures";

/// Declares --size and --layers, the shape of a model that is timed (bench.hpp).
void add_size(const Command& command, std::string& size, int& layers);

/// The source of a study's queries, keys and values: --from fresh, --run DIR, --model FOLDER with
/// --text FILE, or --qkv FILE.
struct SourceFlags {
  std::string from, run, model, text, qkv, checkpoint = "best", data;
  std::string recipe = "skyformer";  // of the fresh model
  bool untrained = false;            // the encoder
  std::uint64_t seed = 42;
  Command command;  // that declares them

  void declare(const Command& command);
  /// Opens it. A fresh model gets the longest of `lengths`. UsageError when two sources are named,
  /// or a flag is given that only another would heed.
  [[nodiscard]] InputSource open(const std::vector<std::int64_t>& lengths) const;
};
inline constexpr std::int64_t kLongestFresh = std::int64_t{1} << 20;  // positions

}  // namespace skytape::train
