#include "train/lab/lra/report_runs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "data/files/source.hpp"
#include "tensor/core/error.hpp"
#include "tensor/core/suggest.hpp"
#include "train/config/identity.hpp"
#include "train/config/run_config.hpp"
#include "train/encoders/encoder.hpp"
#include "train/lab/lra/finished_runs.hpp"
#include "train/run/result.hpp"
#include "train/run/run_folder.hpp"
#include "train/run/run_summary.hpp"

namespace skytape::train {
namespace {

namespace fs = std::filesystem;
using data::Json;

void read_curves(ReportRun& run, const fs::path& metrics) {
  std::int64_t logged = 0;  // step of the last log point
  double seconds = 0;       // at that step
  for (const Json& metric : read_metrics(metrics)) {
    const auto step = metric.at("step").get<std::int64_t>();
    const std::string kind = metric.value("kind", "");
    run.step = std::max(run.step, step);
    if (kind == "train") {
      seconds += static_cast<double>(step - logged) / metric.at("steps_per_second").get<double>();
      logged = step;
      run.step_at.push_back(static_cast<double>(step));
      run.seconds_at.push_back(seconds);
      run.loss.push_back(metric.at("loss").get<double>());
      run.last = metric;
    } else if (kind == "eval") {
      run.dev_step_at.push_back(static_cast<double>(step));
      run.dev_seconds_at.push_back(metric.value("train_seconds", seconds));
      run.dev_loss.push_back(metric.value("loss", std::numeric_limits<double>::quiet_NaN()));
      run.dev_accuracy.push_back(100 * metric.at("accuracy").get<double>());
    }
  }
}

/// The run in `folder`, which is called `name`.
ReportRun read_run(const fs::path& folder, const std::string& name) {
  const Json config = read_config(folder);
  ReportRun run;
  run.folder = name;
  run.config = config;
  run.task = config.at("data").at("name").get<std::string>();
  run.attention = config.at("attention").get<std::string>();
  run.added = added_to_papers(config);
  run.seed = config.at("seed").get<std::uint64_t>();
  run.steps = planned_steps(config);
  run.revision = config.at("revision").get<std::string>();
  run.machine = config.at("machine").at("cpu").get<std::string>();
  read_curves(run, folder / "metrics.jsonl");
  const fs::path result = folder / "result.json";
  if (fs::exists(result)) {
    run.result = is_pretraining(config) ? read_pretraining_result(result) : read_result(result);
  }
  return run;
}

void name_settings(std::vector<ReportRun>& runs) {
  std::vector<Json> configs;
  for (const ReportRun& run : runs) configs.push_back(run.config);
  const std::vector<std::string> names = distinct_names(configs);
  for (std::size_t i = 0; i < names.size(); ++i) runs[i].settings = names[i];
}

/// The studies of a folder: every JSON file there that an Experiment wrote.
std::vector<ReportStudy> read_studies(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : data::entries_of(folder)) {
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  }
  std::vector<ReportStudy> studies;
  for (const fs::path& file : files) {
    const Json j = read_json(file);
    if (!j.contains("experiment") || !j.contains("tables")) continue;
    studies.push_back({j.at("experiment").get<std::string>(), file});
  }
  return studies;
}

}  // namespace

double ReportRun::seconds() const {
  return std::max(seconds_at.empty() ? 0 : seconds_at.back(),
                  dev_seconds_at.empty() ? 0 : dev_seconds_at.back());
}

ReportRuns read_report_runs(const fs::path& root) {
  if (!fs::is_directory(root)) {
    throw DataError(fmt::format("report: {}: no folder of runs", root.string()));
  }
  ReportRuns found;
  for (const fs::path& folder : run_folders(root)) {
    const std::string name = name_of_folder(folder);
    const fs::path first = folder / kPretrainingFolder;  // of a run of two phases
    try {
      if (holds_encoder(folder)) {
        found.skipped.push_back(name + kIsEncoder);
        continue;
      }
      if (fs::exists(first / "config.json")) {
        found.pretrainings.push_back(read_run(first, name + "/" + kPretrainingFolder));
      }
      if (fs::exists(folder / "config.json") || fs::exists(folder / "last.safetensors")) {
        const bool pretraining = is_pretraining(read_config(folder));
        (pretraining ? found.pretrainings : found.runs).push_back(read_run(folder, name));
      } else {
        for (ReportStudy& study : read_studies(folder)) found.studies.push_back(std::move(study));
      }
    } catch (const std::exception& broken) {  // also a figure of the wrong kind
      found.skipped.push_back(fmt::format("{}: broken: {}", name, data::problem_of(broken)));
    }
  }
  if (found.runs.empty() && found.pretrainings.empty() && found.studies.empty()) {
    throw DataError(fmt::format("report: {}: no run and no study there{}{}", root.string(),
                                found.skipped.empty() ? "" : "; ", listed(found.skipped, "; ")));
  }
  name_settings(found.runs);
  name_settings(found.pretrainings);
  return found;
}

}  // namespace skytape::train
