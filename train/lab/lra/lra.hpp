// The grid of the Long Range Arena: tasks x methods x seeds, and x learning rates x batches where
// asked for; each cell runs in a separate process.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "data/files/json.hpp"
#include "train/config/recipes.hpp"
#include "train/config/run_config.hpp"

namespace skytape::train {

struct GridOptions {
  std::vector<std::string> tasks, attentions;
  std::vector<std::string> lrs, batches;  // axes; empty: what the recipe says
  std::int64_t seeds = 1;                 // base.seed and those after it
  Choices base;                           // the rest of every cell
  std::string features;                   // where a method has them; empty: what the recipe says
  std::string budget;  // time that the run of a cell may take by itself; empty: any
  std::filesystem::path out = "runs";
  std::filesystem::path pack;  // .tar.gz with the results so far (pack.hpp); empty: none
  bool table_only = false;     // nothing runs: no step is timed for the budget
  int jobs = 1;                // cells at a time
  int threads = 1;             // of all of them together
};

/// One run of the grid: of the task, or the pre-training of a configuration that predicts hidden
/// tokens, whose choices are those of `skytape pretrain`.
struct GridCell {
  std::string folder;  // below `out`: <task>-<attention>-<recipe>[-lr<lr>][-b<batch>]-s<seed>
  Choices choices;
  Recipe recipe;  // as the configuration has it: its file may change while the grid runs
  RunConfig config;
  data::Json data;  // facts() of its data; null: not prepared yet
};

/// Returns the part of a cell's config.json that is known before its run starts.
[[nodiscard]] data::Json wanted_config(const GridCell& cell);

/// All cells, seeds innermost. UsageError as resolve() throws it, and for a name given twice.
[[nodiscard]] std::vector<GridCell> grid_cells(const GridOptions& options);

/// Gives each cell whose folder holds a run that computes something else a separate folder,
/// <folder>-2, -3, …, and says on stderr in which keys they differ: what is there is never shown as
/// the cell's.
void place_cells(std::vector<GridCell>& cells, const std::filesystem::path& out);

/// Runs what is not finished, `jobs` cells at a time; each writes to log.txt in its folder, and the
/// results are packed whenever one has ended. A cell
/// that fails, or whose data are missing, is named on stderr and the others continue. After a
/// signal the running cells keep their state and no other starts. Returns 0, 1 if a cell failed, or
/// 128 + signal. Notes which data the cells have, once they are prepared.
int run_grid(std::vector<GridCell>& cells, const GridOptions& options);

}  // namespace skytape::train
