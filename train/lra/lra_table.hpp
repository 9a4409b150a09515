// The accuracy table of the Long Range Arena: finished runs of a folder beside the papers' numbers
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
#include "train/papers/paper_results.hpp"
#include "train/runs/time_to_accuracy.hpp"

namespace skytape::train {

/// A finished run, as its folder tells it.
struct FinishedRun {
  std::string folder;  // its name below the folder of runs
  std::string task;    // what the results are called
  std::string attention;
  std::string settings;  // as settings_of() says
  std::uint64_t seed = 0;
  double dev = 0, test = 0;        // accuracy, shares
  std::int64_t test_examples = 0;  // 0: of an older program
  TimeToAccuracy times;            // empty in results of older programs
  data::Json config;               // config.json
};

/// Why a pre-training is not among them.
inline constexpr const char* kAnswersNoTask = ": a pre-training, which answers no task";

struct FoundRuns {
  std::vector<FinishedRun> runs;
  std::vector<std::string> skipped;  // "folder: why": not finished, or broken
};

/// Reads every run folder directly below `folder`, in the order of their names. Folders that hold
/// no file of a run are passed over.
[[nodiscard]] FoundRuns find_runs(const std::filesystem::path& folder);

/// A run that the table must show, finished or not.
struct WantedRun {
  std::string folder;  // where it would lie
  data::Json config;   // to_json() of its configuration
};

/// Recipe and what the user set, sorted by key: "skytape", "skytape, lr=1e-3, steps=500".
[[nodiscard]] std::string settings_of(const data::Json& config);

struct Score {
  double dev = 0, test = 0;  // percent
};

/// Its runs by seed; one that is wanted and not finished has no score.
using TableCell = std::map<std::uint64_t, std::optional<Score>>;

/// Our runs of one method and settings, or a row of a paper.
struct TableRow {
  std::string attention, source;
  std::map<std::string, TableCell> cells;  // by task
  const PaperRow* paper = nullptr;
};

struct AccuracyTable {
  std::vector<std::string> tasks;  // columns
  std::vector<TableRow> rows;
  std::vector<std::string> notes, skipped;
};

/// Wanted runs first, then what else was found, then the papers' rows, method by method. A run of a
/// seed or on data that its cell does not expect (twice the same seed, two data sets) is skipped
/// and named.
[[nodiscard]] AccuracyTable make_table(const std::vector<WantedRun>& wanted, FoundRuns found);

/// The table as it is shown, in words: mean over seeds with their deviation, "–" where no run is
/// finished, "↓" where the mean is not above the baseline.
[[nodiscard]] Table to_table(const AccuracyTable& table);
/// The same as text, with what is not in the table.
[[nodiscard]] std::string to_markdown(const AccuracyTable& table);
/// A line per run of a seed, finished or wanted, and per figure of a paper: in percent, empty where
/// there is none.
[[nodiscard]] std::string to_csv(const AccuracyTable& table);

}  // namespace skytape::train
