// One page about a folder of runs and studies: curves, accuracies next to the papers', every run's
// figures, and the tables and pictures of the studies.
//
//   report.html      or another name; needs no other file
//   curves-TASK.*    data, script and pictures of the curves (plot.hpp)
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace skytape::train {

struct ReportOptions {
  std::filesystem::path
      runs;  // run folders and folders of studies are directly below it; or one run
  std::filesystem::path out;  // a folder, or the page's own name: FOLDER/NAME.html
  int refresh_seconds = 0;    // above zero: the page loads itself anew
};

struct ReportSummary {
  std::filesystem::path page;
  int finished = 0, unfinished = 0, studies = 0;
  std::vector<std::string> skipped;  // "folder: why"
  bool pictures = false;             // false: no gnuplot here
};

/// Writes the page. Unfinished runs have curves and rows but no place among the accuracies; broken
/// runs and studies are skipped and named. DataError if `runs` is no folder, or if nothing there
/// can be shown.
ReportSummary write_report(const ReportOptions& options);

}  // namespace skytape::train
