#include <fmt/format.h>

#include <memory>

#include "data/files/output.hpp"
#include "tensor/core/error.hpp"
#include "train/cli/cli.hpp"
#include "train/config/keys.hpp"
#include "train/lab/cli/lab_cli.hpp"
#include "train/lab/lra/lra.hpp"
#include "train/lab/lra/lra_table.hpp"
#include "train/lab/lra/pack.hpp"
#include "train/process/progress.hpp"
#include "train/process/threads.hpp"

namespace skytape::train {
namespace {

namespace fs = std::filesystem;

struct LraFlags {
  RunFlags run;
  GridOptions grid;
  std::string tasks = "listops,text,retrieval,pathfinder,image", attentions = "all", lrs, batches;
  std::string out = "runs", pack;
  bool without_additions = false;
};

GridOptions grid_options(const LraFlags& flags) {
  GridOptions options = flags.grid;
  options.tasks = task_list(flags.tasks);
  options.attentions = method_list(flags.attentions);
  if (!flags.lrs.empty()) options.lrs = split_list("--lr", flags.lrs);
  if (!flags.batches.empty()) options.batches = split_list("--batch", flags.batches);
  options.base = flags.run.choices();
  for (const KeyInfo& key : recipe_keys()) {
    if (!flags.without_additions || key.adds.empty()) continue;
    const std::string value(key.standard);
    options.base.settings.push_back({std::string(key.key), value, "--without-additions"});
  }
  options.out = flags.out;
  options.pack = flags.pack;
  options.threads = thread_count();
  return options;
}

/// Prints the table and writes lra.txt and lra.csv.
void show_table(const std::vector<GridCell>& cells, const fs::path& out) {
  std::vector<data::Json> wanted;
  for (const GridCell& cell : cells) wanted.push_back(wanted_config(cell));
  data::make_folder(out);  // of a grid in which no cell could run
  const FoundRuns found = find_runs(out);
  const AccuracyTable table = make_table(wanted, found);
  const Table times = time_table(found.runs);
  std::string text = to_text(table) + "\n";
  if (!times.rows.empty()) text += to_text(times) + "\n";
  text += to_text(arena_table(table)) + "\n" + to_text(method_table(table));
  data::write_file(out / "lra.txt", text);
  data::write_file(out / "lra.csv", to_csv(table));
  fmt::print("{}", text);
  fmt::print(stderr, "wrote {} and lra.csv\n", (out / "lra.txt").string());
}

/// Takes over the results of --pack, where an earlier call on this or another machine left some,
/// and writes it: what is wrong with it shows before the first cell runs.
void begin_pack(const GridOptions& options) {
  if (options.pack.empty()) return;
  if (fs::is_directory(options.pack)) {
    throw UsageError(
        fmt::format("--pack {}: a folder, expected FILE.tar.gz", options.pack.string()));
  }
  refuse_other_file(options.pack);
  data::make_folder(options.out);
  if (fs::exists(options.pack)) {
    const int runs = unpack_results(options.pack, options.out);
    fmt::print(stderr, "{}: {} unpacked\n", options.pack.string(), counted(runs, "finished run"));
  }
  pack_results(options.out, options.pack);
}

int run(const LraFlags& flags) {
  const GridOptions options = grid_options(flags);
  if (options.table_only && !options.pack.empty()) {
    throw UsageError("lra: --pack has no effect with --table-only, which runs nothing");
  }
  if (options.table_only && !fs::is_directory(options.out)) {
    throw DataError(fmt::format("lra: {}: no folder of runs", options.out.string()));
  }
  std::vector<GridCell> cells = grid_cells(options);
  if (!options.table_only) begin_pack(options);
  place_cells(cells, options.out);
  const int code = options.table_only ? 0 : run_grid(cells, options);
  show_table(cells, options.out);
  return code;
}

}  // namespace

void add_lra(const Command& program) {
  const Command command = program.add_command(
      "lra", "run a grid of tasks and methods; print a table with the papers' numbers");
  const auto flags = std::make_shared<LraFlags>();
  command.add_option("--tasks", flags->tasks, "tasks a,b,…, or all: Path-X too");
  command.add_option("--attentions", flags->attentions, "methods a,b,… or all");
  command.add_option("--lr", flags->lrs, "axis: learning rates a,b,…");
  command.add_option("--batch", flags->batches, "axis: batch sizes a,b,…");
  command.add_option("--seed", flags->run.seed, "the first seed");
  command.add_option("--seeds", flags->grid.seeds, "seeds per cell, from --seed on")
      .between(1, 10000);
  command.add_option("--recipe", flags->run.recipe, recipe_help());
  command.add_option("--steps", flags->run.steps, "length of every run and of its schedule");
  command.add_option("--budget", flags->grid.budget,
                     "20m, 2h: as many steps as fit this time for a run alone on this machine");
  command.add_option("--features", flags->grid.features,
                     "features, for methods that have this option");
  command.add_option("--precision", flags->run.precision, kRunPrecisionHelp);
  command.add_option("--set", flags->run.set, "key=value, for every cell").no_default();
  command.add_flag("--without-additions", flags->without_additions,
                   "the papers' models, without a recipe's additions");
  command.add_option("--device", flags->run.device, "auto, cpu or cuda");
  command.add_option("--jobs", flags->grid.jobs, "cells at a time, which share the threads")
      .between(1, 256);
  command.add_option("--threads", flags->run.threads, "CPU threads in all; 0: all cores");
  command.add_option("--data", flags->run.data, "folder of prepared data sets");
  command.add_option("--out", flags->out, "folder of the run folders and the table");
  command.add_option("--pack", flags->pack,
                     "FILE.tar.gz: the results so far, without weights; what is in it is not run "
                     "again");
  command.add_flag("--table-only", flags->grid.table_only, "run nothing, show the results so far");
  command.runs([flags] { return run(*flags); });
}

}  // namespace skytape::train
