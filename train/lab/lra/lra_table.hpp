// The accuracy table of the Long Range Arena: finished runs of a folder next to the papers' numbers
// and the trivial baselines.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "data/files/json.hpp"
#include "train/formats/table.hpp"
#include "train/lab/lra/finished_runs.hpp"
#include "train/lab/papers/paper_results.hpp"

namespace skytape::train {

struct Score {
  double dev = 0, test = 0;              // percent
  double seconds = 0, step_seconds = 0;  // of training, and of one step of it
  double peak_bytes = 0;
  std::optional<double> paper_seconds;  // until a dev evaluation was above the papers' best
};

/// One method and settings on one task.
struct TableCell {
  std::map<std::uint64_t, std::optional<Score>> runs;  // by seed; no score: wanted, not finished
  std::string added;                                   // added_to_papers()
  data::Json data;                                     // which its runs share; null: not known yet
};

/// Our runs of one method and settings, or a row of a paper.
struct TableRow {
  std::string attention, source;
  std::map<std::string, TableCell> cells;  // by task
  const PaperRow* paper = nullptr;
};

struct AccuracyTable {
  std::vector<std::string> tasks;         // columns
  std::map<std::string, double> trivial;  // baseline of each, a share; none: not known
  std::vector<TableRow> rows;
  std::vector<std::string> notes, skipped;
};

/// Runs that are wanted (as to_json() has their configurations, and "data" where it is known which)
/// first, then what else was found, then the papers' rows, method by method. Only runs that compute
/// the same but for their seeds share a cell: see identity.hpp. A run of a seed or on data that its
/// cell does not expect (twice the same seed, two data sets) is skipped and named.
[[nodiscard]] AccuracyTable make_table(const std::vector<data::Json>& wanted, FoundRuns found);

/// The table as it is shown, in words: mean over seeds with their deviation, "–" where no run is
/// finished, "↓" where the mean is not above the baseline.
[[nodiscard]] Table to_table(const AccuracyTable& table);
/// Our runs alone, a row for each task: the trivial baseline, the papers' best cell, test accuracy
/// over seeds, what was added, and the mean time of training.
[[nodiscard]] Table arena_table(const AccuracyTable& table);
/// Our runs alone, a row for each method and its settings: test accuracy of each task, and what
/// training cost. Means over seeds.
[[nodiscard]] Table method_table(const AccuracyTable& table);
/// A method and its settings on a task, for a picture of accuracy against cost.
struct ArenaPoint {
  std::string name;                        // of the method; with settings where it has several rows
  double seconds = 0;                      // of training, mean over seeds
  double accuracy = 0, low = 0, high = 0;  // test, percent: mean, lowest and highest seed
};
/// Those of a task that are finished.
[[nodiscard]] std::vector<ArenaPoint> arena_points(const AccuracyTable& table,
                                                   const std::string& task);
/// The same as text, with what is not in the table.
[[nodiscard]] std::string to_text(const AccuracyTable& table);
/// A line per run of a seed, finished or wanted, and per figure of a paper: in percent, empty where
/// there is none.
[[nodiscard]] std::string to_csv(const AccuracyTable& table);

}  // namespace skytape::train
