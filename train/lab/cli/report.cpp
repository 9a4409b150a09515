#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <thread>

#include "train/lab/cli/lab_cli.hpp"
#include "train/lab/lra/lra_table.hpp"
#include "train/lab/lra/report.hpp"
#include "train/process/signals.hpp"

namespace skytape::train {
namespace {

struct ReportFlags {
  std::string runs = "runs", out;
  int watch = 0;
  bool markdown = false;
};

void warn(const std::vector<std::string>& skipped) {
  for (const std::string& line : skipped) fmt::print(stderr, "warning: skipped {}\n", line);
}

void report_once(const ReportOptions& options) {
  const ReportSummary summary = write_report(options);
  warn(summary.skipped);
  fmt::print("{}: runs: {} finished, {} not; studies: {}\n", summary.page.string(),
             summary.finished, summary.unfinished, summary.studies);
  std::fflush(stdout);
}

/// Prints the accuracies and times of the finished runs, as a table for a page like this project's
/// own.
int print_markdown(const std::string& runs) {
  const FoundRuns found = find_runs(runs);
  warn(found.skipped);
  fmt::print("{}", to_markdown(time_table(found.runs)));
  return 0;
}

int run(const ReportFlags& flags) {
  if (flags.markdown) return print_markdown(flags.runs);
  ReportOptions options;
  options.runs = flags.runs;
  options.out = flags.out.empty() ? options.runs / "report" : std::filesystem::path(flags.out);
  options.refresh_seconds = flags.watch;
  if (flags.watch > 0) watch_signals();
  for (;;) {
    report_once(options);
    const auto next = std::chrono::steady_clock::now() + std::chrono::seconds(flags.watch);
    while (std::chrono::steady_clock::now() < next && signal_received() == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    if (flags.watch == 0 || signal_received() != 0) return 0;
  }
}

}  // namespace

void add_report(const Command& program) {
  const Command command = program.add_command(
      "report", "one HTML page about a folder of runs and studies, with curves and tables");
  const auto flags = std::make_shared<ReportFlags>();
  command.add_option("--runs", flags->runs,
                     "folder of run folders and of studies' folders, or of one run");
  command.add_option(
      "--out", flags->out,
      "folder of the page and its pictures, or the page itself: FILE.html; RUNS/report");
  command
      .add_option("--watch", flags->watch,
                  "make it again every so many seconds, until Ctrl-C; 0: once")
      .between(0, 86400);
  command.add_flag(
      "--markdown", flags->markdown,
      "print one table, of times and accuracies of the finished runs, and make no page");
  command.runs([flags] { return run(*flags); });
}

}  // namespace skytape::train
