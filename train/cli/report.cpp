#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <thread>

#include "train/cli/cli.hpp"
#include "train/lra/report.hpp"
#include "train/process/signals.hpp"

namespace skytape::train {
namespace {

struct ReportFlags {
  std::string runs = "runs", out;
  int watch = 0;
};

void report_once(const ReportOptions& options) {
  const ReportSummary summary = write_report(options);
  for (const std::string& line : summary.skipped) {
    fmt::print(stderr, "warning: skipped {}\n", line);
  }
  fmt::print("{}: runs: {} finished, {} not; studies: {}\n", (options.out / "report.html").string(),
             summary.finished, summary.unfinished, summary.studies);
  std::fflush(stdout);
}

int run(const ReportFlags& flags) {
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

void add_report(CommandLine& program) {
  Command command = program.command(
      "report", "one HTML page about a folder of runs and studies, with curves and tables");
  const auto flags = std::make_shared<ReportFlags>();
  command.option("--runs", flags->runs, "folder of run folders and of studies' folders")
      .show_default();
  command.option("--out", flags->out, "folder of the page and its pictures; RUNS/report");
  command
      .option("--watch", flags->watch, "make it again every so many seconds, until Ctrl-C; 0: once")
      .range(0, 86400)
      .show_default();
  command.runs([flags] { return run(*flags); });
}

}  // namespace skytape::train
