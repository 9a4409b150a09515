// The contents of a folder for the report page: its runs, finished or not, and its studies.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "data/files/json.hpp"

namespace skytape::train {

/// A run, finished or not, as its files tell it.
struct ReportRun {
  std::string folder, task, attention, added, revision, machine;
  std::string settings;  // its name among the runs of the page: distinct_names()
  std::uint64_t seed = 0;
  std::int64_t step = 0, steps = 0;  // where it is, and where it goes
  data::Json config;                 // config.json
  data::Json result;                 // null: not finished; of a pre-training, its own
  data::Json last;                   // its last training metric; null: none yet
  // Curves; seconds are those of training, without evaluations and pauses.
  std::vector<double> step_at, seconds_at, loss;
  std::vector<double> dev_step_at, dev_seconds_at, dev_loss, dev_accuracy;  // per cent

  /// Returns the seconds of training, as far as its metrics go; 0: there are none yet.
  [[nodiscard]] double seconds() const;
};

/// A JSON file that an Experiment wrote.
struct ReportStudy {
  std::string name;
  std::filesystem::path file;
};

struct ReportRuns {
  std::vector<ReportRun> runs, pretrainings;
  std::vector<ReportStudy> studies;
  std::vector<std::string> skipped;
};

/// Runs, pre-trainings and studies below `root`, by name, or the run that `root` itself holds; what
/// is broken is skipped, with the reason. DataError where there is none.
[[nodiscard]] ReportRuns read_report_runs(const std::filesystem::path& root);

}  // namespace skytape::train
