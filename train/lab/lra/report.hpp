// What is known of a folder of runs and studies: curves, accuracies next to the papers', and every
// run's figures, as JSON. train/report/page.py makes the report page of it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace skytape::train {

struct ReportOptions {
  std::filesystem::path
      runs;  // run folders and folders of studies are directly below it; or one run
  std::filesystem::path out;  // the folder of report.json
};

struct ReportSummary {
  std::filesystem::path file;
  int finished = 0, unfinished = 0, studies = 0;
  std::vector<std::string> skipped;  // "folder: why"
};

/// Writes report.json. Unfinished runs have curves and rows but no place among the accuracies;
/// broken runs are skipped and named. DataError if `runs` is no folder, or if nothing there
/// can be shown.
ReportSummary write_report(const ReportOptions& options);

}  // namespace skytape::train
