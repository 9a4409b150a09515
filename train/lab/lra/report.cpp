#include "train/lab/lra/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>

#include "data/files/json.hpp"
#include "data/files/output.hpp"
#include "data/task.hpp"
#include "tensor/core/suggest.hpp"
#include "train/config/identity.hpp"
#include "train/formats/table.hpp"
#include "train/lab/lra/lra_table.hpp"
#include "train/lab/lra/report_runs.hpp"
#include "train/process/progress.hpp"
#include "train/process/version.hpp"
#include "train/run/result.hpp"
#include "train/run/time_to_accuracy.hpp"

namespace skytape::train {
namespace {

namespace fs = std::filesystem;
using data::Json;

/// Runs that differ in their seeds alone, as identity_of() says: a line.
struct Line {
  std::string name;  // its method; the first run's folder where the method has other lines, too
  std::vector<const ReportRun*> runs;
};

std::vector<Line> lines_of(const std::string& task, const std::vector<ReportRun>& runs) {
  std::vector<Line> lines;
  for (const ReportRun& run : runs) {
    if (run.task != task) continue;
    const auto same = std::find_if(lines.begin(), lines.end(), [&](const Line& line) {
      return differences(identity_of(line.runs[0]->config), identity_of(run.config)).empty();
    });
    if (same == lines.end()) {
      lines.push_back({"", {&run}});
    } else {
      same->runs.push_back(&run);
    }
  }
  for (Line& line : lines) {
    const ReportRun& first = *line.runs[0];
    const bool only = std::count_if(lines.begin(), lines.end(), [&](const Line& other) {
                        return other.runs[0]->attention == first.attention;
                      }) == 1;
    line.name = only ? first.attention : first.folder;
  }
  return lines;
}

/// Loss and dev accuracy of a task's runs, or of its pre-trainings, line by line.
Json curves(const std::string& task, const std::vector<ReportRun>& runs, bool pretraining) {
  Json lines = Json::array();
  for (const Line& line : lines_of(task, runs)) {
    Json seeds = Json::array();
    for (const ReportRun* run : line.runs) {
      seeds.push_back({{"seed", run->seed},
                       {"step", run->step_at},
                       {"seconds", run->seconds_at},
                       {"loss", run->loss},
                       {"dev_step", run->dev_step_at},
                       {"dev_seconds", run->dev_seconds_at},
                       {"dev_loss", run->dev_loss},
                       {"dev_accuracy", run->dev_accuracy}});
    }
    lines.push_back({{"name", line.name}, {"runs", seeds}});
  }
  Json figure = {{"task", task},
                 {"pretraining", pretraining},
                 {"trivial", nullptr},
                 {"papers_best", nullptr},
                 {"lines", lines}};
  if (pretraining) return figure;
  double baseline = -1;
  for (const ReportRun& run : runs) {
    if (run.task == task) baseline = std::max(baseline, trivial_share(task, run.result));
  }
  if (baseline >= 0) figure["trivial"] = 100 * baseline;
  if (const auto best = best_paper_accuracy(task)) figure["papers_best"] = *best;
  return figure;
}

/// A finished run as a cell of a map of learning rates and batches.
struct RateCell {
  const ReportRun* run;
  double lr = 0, batch = 0;
  Identity rest;  // all else that it computes
};

/// Returns nothing for a run that does not say its learning rate and batch as numbers.
std::optional<RateCell> rate_cell(const ReportRun& run) {
  RateCell cell{&run, 0, 0, identity_of(run.config)};
  const auto take = [&](const char* key, double& value) {
    const auto found = cell.rest.find(key);
    if (found == cell.rest.end()) return false;
    const auto number = number_in<double>(found->second);
    cell.rest.erase(found);
    value = number.value_or(0);
    return number.has_value();
  };
  if (!take("lr", cell.lr) || !take("batch", cell.batch)) return std::nullopt;
  return cell;
}

/// Finished runs that differ in nothing but learning rate, batch and seed, where there are several
/// pairs of a learning rate and a batch.
Json rates(const std::vector<ReportRun>& runs) {
  std::vector<std::vector<RateCell>> groups;
  for (const ReportRun& run : runs) {
    if (run.result.is_null()) continue;
    const std::optional<RateCell> cell = rate_cell(run);
    if (!cell) continue;
    const auto same = std::find_if(groups.begin(), groups.end(), [&](const auto& group) {
      return differences(group[0].rest, cell->rest).empty();
    });
    (same == groups.end() ? groups.emplace_back() : *same).push_back(*cell);
  }
  Json all = Json::array();
  for (const std::vector<RateCell>& group : groups) {
    Json cells = Json::array();
    std::set<std::pair<double, double>> pairs;
    for (const RateCell& cell : group) {
      const Json& result = cell.run->result;
      pairs.insert({cell.lr, cell.batch});
      cells.push_back({{"lr", cell.lr},
                       {"batch", cell.batch},
                       {"seed", cell.run->seed},
                       {"dev_accuracy", 100 * result.at("dev_accuracy").get<double>()},
                       {"seconds", result.at("train_seconds")}});
    }
    if (pairs.size() < 2) continue;
    const ReportRun& first = *group[0].run;
    all.push_back({{"task", first.task}, {"attention", first.attention}, {"runs", cells}});
  }
  return all;
}

Cell number(const Json& object, const char* key, double scale = 1) {
  const Json& value = data::member(object, key);
  return value.is_number() ? Cell(scale * value.get<double>()) : Cell();
}

Table table_of(const std::vector<ReportRun>& runs) {
  Table table{"runs",
              "Every run. Accuracies in percent; time is that of training.",
              {{"run"},
               {"task"},
               {"attention"},
               {"settings"},
               {"added"},
               {"seed", "{:.0f}"},
               {"state"},
               {"dev", "{:.2f}"},
               {"test", "{:.2f}"},
               {"time"},
               {"steps/s", "{:.2f}"},
               {"tokens/s", "{:.0f}"},
               {"peak MB", "{:.1f}"},
               {"revision"},
               {"machine"}},
              {},
              {}};
  for (const ReportRun& run : runs) {
    const bool finished = !run.result.is_null();
    const Json& speed = finished ? run.result : run.last;
    const std::string state =
        finished ? fmt::format("{} steps", grouped(run.result.at("steps").get<std::int64_t>()))
                 : fmt::format("at {} of {}", grouped(run.step), grouped(run.steps));
    const double seconds = run.seconds();
    table.add({run.folder, run.task, run.attention, run.settings,
               run.added.empty() ? "–" : run.added, run.seed, state,
               number(run.result, "dev_accuracy", 100), number(run.result, "test_accuracy", 100),
               finished      ? duration_text(run.result.at("train_seconds").get<double>())
               : seconds > 0 ? Cell(duration_text(seconds))
                             : Cell(),
               number(speed, "steps_per_second"), number(speed, "tokens_per_second"),
               number(run.result, "peak_bytes", 1e-6), run.revision, run.machine});
  }
  return table;
}

Table table_of_pretrainings(const std::vector<ReportRun>& runs) {
  Table table{"pretrainings",
              "Every pre-training: what it found of the hidden tokens of dev, in percent.",
              {{"run"},
               {"task"},
               {"attention"},
               {"settings"},
               {"seed", "{:.0f}"},
               {"state"},
               {"masked accuracy", "{:.2f}"},
               {"perplexity", "{:.3f}"},
               {"time"},
               {"steps/s", "{:.2f}"},
               {"revision"}},
              {},
              {}};
  for (const ReportRun& run : runs) {
    const double seconds = run.seconds();
    table.add({run.folder, run.task, run.attention, run.settings, run.seed,
               fmt::format("at {} of {}", grouped(run.step), grouped(run.steps)),
               number(run.result, "masked_accuracy", 100), number(run.result, "perplexity"),
               seconds > 0 ? Cell(duration_text(seconds)) : Cell(),
               number(run.last, "steps_per_second"), run.revision});
  }
  return table;
}

/// Tasks that have runs, in the tasks' order.
std::vector<std::string> tasks_of(const std::vector<ReportRun>& runs) {
  std::set<std::string> present;
  for (const ReportRun& run : runs) present.insert(run.task);
  std::vector<std::string> ordered;
  for (const data::TaskInfo& task : data::tasks()) {
    if (present.erase(std::string(task.name)) > 0) ordered.emplace_back(task.name);
  }
  ordered.insert(ordered.end(), present.begin(), present.end());  // custom data
  return ordered;
}

/// Returns a table of the page, and its heading.
Json section(const char* heading, const Table& table) {
  Json json = to_json(table);
  json["heading"] = heading;
  json["name"] = table.name;
  return json;
}

/// Accuracy against seconds of training, for each task on which several methods are finished.
Json arena(const AccuracyTable& table) {
  Json pictures = Json::array();
  for (const std::string& task : table.tasks) {
    Json points = Json::array();
    for (const ArenaPoint& p : arena_points(table, task)) {
      points.push_back({{"name", p.name},
                        {"seconds", p.seconds},
                        {"accuracy", p.accuracy},
                        {"low", p.low},
                        {"high", p.high}});
    }
    if (points.size() < 2) continue;
    const std::optional<double> best = best_paper_accuracy(task);
    pictures.push_back(
        {{"task", task}, {"papers_best", best ? Json(*best) : Json()}, {"points", points}});
  }
  return pictures;
}

/// Adds the results of the finished runs. `skipped` gets those that no other part of the page
/// tells.
void add_accuracies(const fs::path& runs, Json& report, std::vector<std::string>& skipped) {
  Json& sections = report["accuracies"];
  FoundRuns finished = find_runs(runs);
  const Table times = time_table(finished.runs);
  const AccuracyTable accuracies = make_table({}, std::move(finished));
  for (const std::string& line : accuracies.skipped) {
    if (line.ends_with(": not finished") || line.ends_with(kAnswersNoTask)) continue;
    skipped.push_back(line);
  }
  sections.push_back(section("The arena, task by task", arena_table(accuracies)));
  sections.push_back(section("Accuracy and the papers' accuracy", to_table(accuracies)));
  sections.push_back(section("Methods: accuracy and cost", method_table(accuracies)));
  if (!times.rows.empty()) sections.push_back(section("Time to accuracy", times));
  report["arena"] = arena(accuracies);
}

}  // namespace

ReportSummary write_report(const ReportOptions& options) {
  const ReportRuns found = read_report_runs(options.runs);
  ReportSummary summary;
  summary.file = options.out / "report.json";
  summary.studies = static_cast<int>(found.studies.size());
  for (const ReportRun& run : found.runs) {
    ++(run.result.is_null() ? summary.unfinished : summary.finished);
  }
  const Json machine = machine_facts();
  Json report = {
      {"title", options.runs.string()},
      {"facts", fmt::format("{} UTC; revision {}; made on {}, {} cores; runs: {} finished, {} not; "
                            "studies: {}.",
                            utc_now("%Y-%m-%d %H:%M"), revision(),
                            machine.at("cpu").get<std::string>(), machine.at("cores").get<int>(),
                            summary.finished, summary.unfinished, summary.studies)},
      {"accuracies", Json::array()},
      {"arena", Json::array()},
      {"curves", Json::array()},
      {"rates", rates(found.runs)},
      {"runs", Json::array()},
      {"studies", Json::array()}};
  if (summary.finished > 0) add_accuracies(options.runs, report, summary.skipped);
  for (const std::string& task : tasks_of(found.runs)) {
    report["curves"].push_back(curves(task, found.runs, false));
  }
  for (const std::string& task : tasks_of(found.pretrainings)) {
    report["curves"].push_back(curves(task, found.pretrainings, true));
  }
  if (!found.runs.empty()) report["runs"].push_back(section("Runs", table_of(found.runs)));
  if (!found.pretrainings.empty()) {
    report["runs"].push_back(section("Pre-trainings", table_of_pretrainings(found.pretrainings)));
  }
  for (const ReportStudy& study : found.studies) {
    report["studies"].push_back(
        {{"name", study.name}, {"file", fs::absolute(study.file).string()}});
  }
  for (const std::string& line : found.skipped) {
    const std::string folder = line.substr(0, line.find(':'));
    const bool named = std::any_of(summary.skipped.begin(), summary.skipped.end(),
                                   [&](const auto& s) { return s.starts_with(folder + ":"); });
    if (!named) summary.skipped.push_back(line);
  }
  report["skipped"] = summary.skipped;
  data::make_folder(options.out);
  data::write_file(summary.file, data::json_text(report) + "\n");
  return summary;
}

}  // namespace skytape::train
