#include "train/lra/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "data/files/json.hpp"
#include "data/files/output.hpp"
#include "data/task.hpp"
#include "tensor/core/error.hpp"
#include "tensor/core/suggest.hpp"
#include "train/config/recipes.hpp"
#include "train/config/run_config.hpp"
#include "train/formats/html.hpp"
#include "train/formats/plot.hpp"
#include "train/formats/table.hpp"
#include "train/lra/lra_table.hpp"
#include "train/lra/time_table.hpp"
#include "train/papers/paper_results.hpp"
#include "train/process/progress.hpp"
#include "train/process/version.hpp"
#include "train/runs/result.hpp"
#include "train/runs/run_folder.hpp"
#include "train/runs/run_summary.hpp"

namespace skytape::train {
namespace {

namespace fs = std::filesystem;
using data::Json;

/// A run, finished or not, as its files tell it.
struct Run {
  std::string folder, task, attention, settings, added, revision, machine;
  std::uint64_t seed = 0;
  std::int64_t step = 0, steps = 0;  // where it is, and where it goes
  Json result;                       // null: not finished; of a pre-training, its own
  Json last;                         // its last training metric; null: none yet
  // Curves; seconds are those of training, without evaluations and pauses.
  std::vector<double> step_at, seconds_at, loss;
  std::vector<double> dev_step_at, dev_seconds_at, dev_accuracy;  // per cent

  /// Of training, as far as its metrics go; 0: there are none yet.
  double seconds() const {
    return std::max(seconds_at.empty() ? 0 : seconds_at.back(),
                    dev_seconds_at.empty() ? 0 : dev_seconds_at.back());
  }
};

/// A study's tables and the pictures beside them.
struct Study {
  std::string name, facts;
  std::vector<Table> tables;
  std::vector<fs::path> pictures;
};

// ---- reading -------------------------------------------------------------------------------------

void read_curves(Run& run, const fs::path& metrics) {
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
      run.dev_accuracy.push_back(100 * metric.at("accuracy").get<double>());
    }
  }
}

/// The run in `folder`, which is called `name`.
Run read_run(const fs::path& folder, const std::string& name) {
  const Json config = read_json(folder / "config.json");
  Run run;
  run.folder = name;
  run.task = config.at("data").at("name").get<std::string>();
  run.attention = config.at("attention").get<std::string>();
  run.settings = settings_of(config);
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

/// The studies of a folder: every JSON file there that an Experiment wrote.
std::vector<Study> read_studies(const fs::path& folder) {
  std::vector<fs::path> files, pictures;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".json") files.push_back(entry.path());
    if (entry.path().extension() == ".svg") pictures.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::sort(pictures.begin(), pictures.end());
  std::vector<Study> studies;
  for (const fs::path& file : files) {
    const Json j = read_json(file);
    if (!j.contains("experiment") || !j.contains("tables")) continue;
    Study study;
    study.name = j.at("experiment").get<std::string>();
    study.facts =
        fmt::format("{}; revision {}; {}; {}", j.at("date").get<std::string>(),
                    j.at("revision").get<std::string>(),
                    j.at("machine").at("cpu").get<std::string>(), data::json_text(j.at("facts")));
    for (const auto& [name, table] : j.at("tables").items()) {
      study.tables.push_back(table_from_json(table, file.string()));
    }
    if (studies.empty()) study.pictures = pictures;
    studies.push_back(std::move(study));
  }
  return studies;
}

struct Found {
  std::vector<Run> runs, pretrainings;
  std::vector<Study> studies;
  std::vector<std::string> skipped;
};

Found read_all(const fs::path& root) {
  if (!fs::is_directory(root)) {
    throw DataError(fmt::format("report: {}: no folder of runs", root.string()));
  }
  std::vector<fs::path> folders;
  for (const fs::directory_entry& entry : fs::directory_iterator(root)) {
    if (entry.is_directory()) folders.push_back(entry.path());
  }
  std::sort(folders.begin(), folders.end());
  Found found;
  for (const fs::path& folder : folders) {
    const std::string name = folder.filename().string();
    const fs::path first = folder / kPretrainingFolder;  // of a run of two phases
    try {
      if (fs::exists(first / "config.json")) {
        found.pretrainings.push_back(read_run(first, name + "/" + kPretrainingFolder));
      }
      if (fs::exists(folder / "config.json") || fs::exists(folder / "last.safetensors")) {
        const bool pretraining = is_pretraining(read_json(folder / "config.json"));
        (pretraining ? found.pretrainings : found.runs).push_back(read_run(folder, name));
      } else {
        for (Study& study : read_studies(folder)) found.studies.push_back(std::move(study));
      }
    } catch (const std::exception& broken) {  // also a figure of the wrong kind
      found.skipped.push_back(fmt::format("{}: broken: {}", name, broken.what()));
    }
  }
  if (found.runs.empty() && found.pretrainings.empty() && found.studies.empty()) {
    throw DataError(fmt::format("report: {}: no run and no study there{}{}", root.string(),
                                found.skipped.empty() ? "" : "; ", listed(found.skipped, "; ")));
  }
  return found;
}

// ---- the page's parts ----------------------------------------------------------------------------

/// Runs that differ in their seeds alone: a line.
struct Line {
  std::string name;  // its method; the first run's folder where the method has other lines, too
  std::vector<const Run*> runs;
};

std::vector<Line> lines_of(const std::string& task, const std::vector<Run>& runs) {
  std::vector<Line> lines;
  for (const Run& run : runs) {
    if (run.task != task) continue;
    const auto same = std::find_if(lines.begin(), lines.end(), [&](const Line& line) {
      return line.runs[0]->attention == run.attention && line.runs[0]->settings == run.settings;
    });
    if (same == lines.end()) {
      lines.push_back({"", {&run}});
    } else {
      same->runs.push_back(&run);
    }
  }
  for (Line& line : lines) {
    const Run& first = *line.runs[0];
    const bool only = std::count_if(lines.begin(), lines.end(), [&](const Line& other) {
                        return other.runs[0]->attention == first.attention;
                      }) == 1;
    line.name = only ? first.attention : first.folder;
  }
  return lines;
}

/// The mean of the runs' values at each step that they have, against the mean of what x was there;
/// of several runs with a band from the lowest to the highest value.
Series mean_of(const Line& line, std::vector<double> Run::*steps, std::vector<double> Run::*x,
               std::vector<double> Run::*y) {
  struct Point {
    double x = 0, y = 0, low = 0, high = 0, runs = 0;
  };
  std::map<double, Point> points;  // by step
  for (const Run* run : line.runs) {
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
Figure curves(const std::string& task, const std::vector<Run>& runs, bool pretraining) {
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
    panels[0].series.push_back(mean_of(line, &Run::step_at, &Run::step_at, &Run::loss));
    panels[1].series.push_back(mean_of(line, &Run::step_at, &Run::seconds_at, &Run::loss));
    panels[2].series.push_back(
        mean_of(line, &Run::dev_step_at, &Run::dev_step_at, &Run::dev_accuracy));
    panels[3].series.push_back(
        mean_of(line, &Run::dev_step_at, &Run::dev_seconds_at, &Run::dev_accuracy));
    for (const Run* run : line.runs) {
      last_step = std::max(last_step, static_cast<double>(run->step));
      last_second = std::max(last_second, run->seconds());
    }
  }
  const auto level = [&](const char* name, double percent) {
    panels[2].series.push_back({name, {0, last_step}, {percent, percent}, {}});
    panels[3].series.push_back({name, {0, last_second}, {percent, percent}, {}});
  };
  const double baseline = trivial_baseline(task).accuracy;
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
  if (!object.is_object() || !object.contains(key) || !object[key].is_number()) return {};
  return scale * object.at(key).get<double>();
}

Table table_of(const std::vector<Run>& runs) {
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
  for (const Run& run : runs) {
    const bool finished = !run.result.is_null();
    const Json& speed = finished ? run.result : run.last;
    const std::string state =
        finished ? fmt::format("{} steps", grouped(run.result.at("steps").get<std::int64_t>()))
                 : fmt::format("at {} of {}", grouped(run.step), grouped(run.steps));
    const double seconds = run.seconds();
    table.add({run.folder, run.task, run.attention, run.settings,
               run.added.empty() ? "–" : run.added, static_cast<double>(run.seed), state,
               number(run.result, "dev_accuracy", 100), number(run.result, "test_accuracy", 100),
               finished      ? duration_text(run.result.at("train_seconds").get<double>())
               : seconds > 0 ? Cell(duration_text(seconds))
                             : Cell(),
               number(speed, "steps_per_second"), number(speed, "tokens_per_second"),
               number(run.result, "peak_bytes", 1e-6), run.revision, run.machine});
  }
  return table;
}

Table table_of_pretrainings(const std::vector<Run>& runs) {
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
  for (const Run& run : runs) {
    const double seconds = run.seconds();
    table.add({run.folder, run.task, run.attention, run.settings, static_cast<double>(run.seed),
               fmt::format("at {} of {}", grouped(run.step), grouped(run.steps)),
               number(run.result, "masked_accuracy", 100), number(run.result, "perplexity"),
               seconds > 0 ? Cell(duration_text(seconds)) : Cell(),
               number(run.last, "steps_per_second"), run.revision});
  }
  return table;
}

/// Tasks that have runs, in the tasks' order.
std::vector<std::string> tasks_of(const std::vector<Run>& runs) {
  std::set<std::string> present;
  for (const Run& run : runs) present.insert(run.task);
  std::vector<std::string> ordered;
  for (const data::TaskInfo& task : data::tasks()) {
    if (present.erase(std::string(task.name)) > 0) ordered.emplace_back(task.name);
  }
  ordered.insert(ordered.end(), present.begin(), present.end());  // own data
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

}  // namespace

ReportSummary write_report(const ReportOptions& options) {
  Found found = read_all(options.runs);
  const std::vector<std::string> tasks = tasks_of(found.runs);
  std::vector<Figure> figures;
  for (const std::string& task : tasks) figures.push_back(curves(task, found.runs, false));
  for (const std::string& task : tasks_of(found.pretrainings)) {
    figures.push_back(curves(task, found.pretrainings, true));
  }

  ReportSummary summary;
  summary.pictures = draw(options.out, figures);
  summary.studies = static_cast<int>(found.studies.size());
  for (const Run& run : found.runs)
    ++(run.result.is_null() ? summary.unfinished : summary.finished);

  const Json machine = machine_facts();
  std::string body = fmt::format(
      "<h1>skytape: {}</h1>\n<p class=\"facts\">{} UTC; revision {}; made on {}, {} "
      "cores; runs: {} finished, {} not; studies: {}.</p>\n",
      html_escaped(options.runs.string()), utc_now("%Y-%m-%d %H:%M"), revision(),
      html_escaped(machine.at("cpu").get<std::string>()), machine.at("cores").get<int>(),
      summary.finished, summary.unfinished, summary.studies);
  if (summary.finished > 0) {
    FoundRuns finished = find_runs(options.runs);
    const Table times = time_table(finished.runs);
    const AccuracyTable accuracies = make_table({}, std::move(finished));
    body += heading("The arena, task by task") + to_html(arena_table(accuracies));
    body += heading("Accuracy beside the papers") + to_html(to_table(accuracies));
    if (!times.rows.empty()) body += heading("Time to accuracy") + to_html(times);
    for (const std::string& line : accuracies.skipped) {
      // Those are on this page elsewhere.
      if (line.ends_with(": not finished") || line.ends_with(kAnswersNoTask)) continue;
      summary.skipped.push_back(line);
    }
  }
  for (const Figure& figure : figures) {
    body += heading(figure.title) +
            picture(options.out / (figure.name + ".svg"), figure.title, summary.pictures);
  }
  if (!found.runs.empty()) body += heading("Runs") + to_html(table_of(found.runs));
  if (!found.pretrainings.empty()) {
    body += heading("Pre-trainings") + to_html(table_of_pretrainings(found.pretrainings));
  }
  for (const Study& study : found.studies) {
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
  data::OutputFile file(options.out / "report.html");
  file.write(html_page("skytape: " + options.runs.string(), body, options.refresh_seconds));
  file.commit();
  return summary;
}

}  // namespace skytape::train
