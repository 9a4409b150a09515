#include <fmt/format.h>

#include <memory>

#include "train/lab/cli/lab_cli.hpp"
#include "train/lab/lra/report.hpp"

namespace skytape::train {
namespace {

struct ReportFlags {
  std::string runs = "runs", out;
};

int run(const ReportFlags& flags) {
  ReportOptions options;
  options.runs = flags.runs;
  options.out = flags.out.empty() ? options.runs / "report" : std::filesystem::path(flags.out);
  const ReportSummary summary = write_report(options);
  for (const std::string& line : summary.skipped) {
    fmt::print(stderr, "warning: skipped {}\n", line);
  }
  fmt::print("{}: runs: {} finished, {} not; studies: {}\n", summary.file.string(),
             summary.finished, summary.unfinished, summary.studies);
  fmt::print("its page: train/report/page.py {}\n", summary.file.string());
  return 0;
}

}  // namespace

void add_report(const Command& program) {
  const Command command = program.add_command(
      "report",
      "what is known of a folder of runs and studies, as JSON; make report draws its page");
  const auto flags = std::make_shared<ReportFlags>();
  command.add_option("--runs", flags->runs,
                     "folder of run folders and of studies' folders, or of one run");
  command.add_option("--out", flags->out, "folder of report.json; RUNS/report");
  command.runs([flags] { return run(*flags); });
}

}  // namespace skytape::train
