#include "train/lab/lra/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "data/files/json.hpp"
#include "data/files/output.hpp"
#include "data/task.hpp"
#include "train/config/identity.hpp"
#include "train/formats/html.hpp"
#include "train/formats/plot.hpp"
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

// ---- the page's parts
// ----------------------------------------------------------------------------

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

/// The mean of the runs' values at each step that they have, against the mean of what x was there;
/// of several runs with a band from the lowest to the highest value.
Series mean_of(const Line& line, std::vector<double> ReportRun::*steps,
               std::vector<double> ReportRun::*x, std::vector<double> ReportRun::*y) {
  struct Point {
    double x = 0, y = 0, low = 0, high = 0, runs = 0;
  };
  std::map<double, Point> points;  // by step
  for (const ReportRun* run : line.runs) {
    for (std::size_t i = 0; i < (run->*y).size(); ++i) {
      Point& p = points[(run->*steps)[i]];
      const double value = (run->*y)[i];
      p.low = p.runs == 0 ? value : std::min(p.low, value);
      p.high = p.runs == 0 ? value : std::max(p.high, value);
      p.x += (run->*x)[i];
      p.y += value;
      ++p.runs;
    }
  }
  Series series{line.name, {}, {}, {}};
  for (const auto& [step, p] : points) {
    series.x.push_back(p.x / p.runs);
    series.y.push_back(p.y / p.runs);
    if (line.runs.size() == 1) continue;
    series.low.push_back(p.low);
    series.high.push_back(p.high);
  }
  return series;
}

/// Loss and dev accuracy of a task's runs, or of its pre-trainings, against steps and against
/// seconds; seeds together.
Figure curves(const std::string& task, const std::vector<ReportRun>& runs, bool pretraining) {
  const Axis steps{"steps"}, seconds{"seconds of training"},
      loss{pretraining ? "masked loss" : "training loss"},
      accuracy{pretraining ? "masked dev accuracy, %" : "dev accuracy, %"};
  std::vector<LinePanel> panels = {{"Loss against steps", steps, loss, {}},
                                   {"Loss against time", seconds, loss, {}},
                                   {"Dev accuracy against steps", steps, accuracy, {}},
                                   {"Dev accuracy against time", seconds, accuracy, {}}};
  double last_step = 0, last_second = 0;
  bool bands = false;
  for (const Line& line : lines_of(task, runs)) {
    bands = bands || line.runs.size() > 1;
    using Run = ReportRun;
    panels[0].series.push_back(mean_of(line, &Run::step_at, &Run::step_at, &Run::loss));
    panels[1].series.push_back(mean_of(line, &Run::step_at, &Run::seconds_at, &Run::loss));
    panels[2].series.push_back(
        mean_of(line, &Run::dev_step_at, &Run::dev_step_at, &Run::dev_accuracy));
    panels[3].series.push_back(
        mean_of(line, &Run::dev_step_at, &Run::dev_seconds_at, &Run::dev_accuracy));
    for (const ReportRun* run : line.runs) {
      last_step = std::max(last_step, static_cast<double>(run->step));
      last_second = std::max(last_second, run->seconds());
    }
  }
  const auto level = [&](const char* name, double percent) {
    panels[2].series.push_back({name, {0, last_step}, {percent, percent}, {}});
    panels[3].series.push_back({name, {0, last_second}, {percent, percent}, {}});
  };
  double baseline = -1;
  for (const ReportRun& run : runs) {
    if (run.task == task) baseline = std::max(baseline, trivial_share(task, run.result));
  }
  if (!pretraining && baseline >= 0) level("trivial baseline", 100 * baseline);
  if (const auto best = best_paper_accuracy(task); best && !pretraining) {
    level("papers' best", *best);
  }
  Figure figure{(pretraining ? "pretraining-" : "curves-") + task,
                task + (pretraining ? ": pre-training" : "") +
                    (bands ? "; lines: means over seeds, bands: lowest to highest" : ""),
                {},
                2};
  for (LinePanel& panel : panels) figure.panels.emplace_back(std::move(panel));
  return figure;
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

std::string heading(std::string_view text) {
  return fmt::format("<h2>{}</h2>\n", html_escaped(text));
}

std::string picture(const fs::path& svg, std::string_view title, bool drawn) {
  if (drawn) return html_picture(svg, title);
  return fmt::format(
      "<p class=\"note\">No gnuplot here: {} has the data and the script of this picture; "
      "`apt-get install gnuplot-nox`, then make the report again.</p>\n",
      html_escaped(svg.parent_path().string()));
}

/// Returns the results of the finished runs. `skipped` gets those that no other part of the page
/// tells.
std::string accuracy_tables(const fs::path& runs, std::vector<std::string>& skipped) {
  FoundRuns finished = find_runs(runs);
  const Table times = time_table(finished.runs);
  const AccuracyTable accuracies = make_table({}, std::move(finished));
  for (const std::string& line : accuracies.skipped) {
    if (line.ends_with(": not finished") || line.ends_with(kAnswersNoTask)) continue;
    skipped.push_back(line);
  }
  return heading("The arena, task by task") + to_html(arena_table(accuracies)) +
         heading("Accuracy and the papers' accuracy") + to_html(to_table(accuracies)) +
         (times.rows.empty() ? "" : heading("Time to accuracy") + to_html(times));
}

}  // namespace

ReportSummary write_report(const ReportOptions& options) {
  ReportRuns found = read_report_runs(options.runs);
  const std::vector<std::string> tasks = tasks_of(found.runs);
  std::vector<Figure> figures;
  for (const std::string& task : tasks) figures.push_back(curves(task, found.runs, false));
  for (const std::string& task : tasks_of(found.pretrainings)) {
    figures.push_back(curves(task, found.pretrainings, true));
  }

  ReportSummary summary;
  summary.page = options.out.extension() == ".html" ? options.out : options.out / "report.html";
  const fs::path beside = summary.page.has_parent_path() ? summary.page.parent_path() : ".";
  summary.pictures = draw(beside, figures);
  summary.studies = static_cast<int>(found.studies.size());
  for (const ReportRun& run : found.runs)
    ++(run.result.is_null() ? summary.unfinished : summary.finished);

  const Json machine = machine_facts();
  std::string body = fmt::format(
      "<h1>skytape: {}</h1>\n<p class=\"facts\">{} UTC; revision {}; made on {}, {} "
      "cores; runs: {} finished, {} not; studies: {}.</p>\n",
      html_escaped(options.runs.string()), utc_now("%Y-%m-%d %H:%M"), revision(),
      html_escaped(machine.at("cpu").get<std::string>()), machine.at("cores").get<int>(),
      summary.finished, summary.unfinished, summary.studies);
  if (summary.finished > 0) body += accuracy_tables(options.runs, summary.skipped);
  for (const Figure& figure : figures) {
    body += heading(figure.title) +
            picture(beside / (figure.name + ".svg"), figure.title, summary.pictures);
  }
  if (!found.runs.empty()) body += heading("Runs") + to_html(table_of(found.runs));
  if (!found.pretrainings.empty()) {
    body += heading("Pre-trainings") + to_html(table_of_pretrainings(found.pretrainings));
  }
  for (const ReportStudy& study : found.studies) {
    body +=
        heading(study.name) + fmt::format("<p class=\"facts\">{}</p>\n", html_escaped(study.facts));
    for (const fs::path& svg : study.pictures) body += html_picture(svg, svg.stem().string());
    for (const Table& table : study.tables) body += to_html(table);
  }
  for (const std::string& line : found.skipped) {
    const std::string folder = line.substr(0, line.find(':'));
    const bool named = std::any_of(summary.skipped.begin(), summary.skipped.end(),
                                   [&](const auto& s) { return s.starts_with(folder + ":"); });
    if (!named) summary.skipped.push_back(line);
  }
  if (!summary.skipped.empty()) {
    body += heading("Skipped") + "<ul>\n";
    for (const std::string& line : summary.skipped) body += "<li>" + html_escaped(line) + "</li>\n";
    body += "</ul>\n";
  }
  data::write_file(summary.page,
                   html_page("skytape: " + options.runs.string(), body, options.refresh_seconds));
  return summary;
}

}  // namespace skytape::train
