// Time until early stopping, from what finished runs wrote.
#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "data/files/json.hpp"
#include "tensor/core/error.hpp"
#include "train/lab/papers/paper_costs.hpp"
#include "train/lab/studies/cost/cost.hpp"
#include "train/run/run_folder.hpp"

namespace skytape::train {
namespace {

namespace fs = std::filesystem;
using data::Json;

/// An evaluation on the dev split, with the seconds that the run had taken until then.
struct DevPoint {
  std::int64_t step = 0;
  double loss = 0, train_seconds = 0, eval_seconds = 0;
};

/// All evaluations of a run, in order. Training time between two log points is taken as even.
std::vector<DevPoint> dev_points(const fs::path& metrics) {
  std::ifstream in(metrics);
  if (!in) throw DataError(fmt::format("{}: cannot open it", metrics.string()));
  std::vector<DevPoint> points;
  std::vector<std::pair<std::int64_t, double>> clock = {{0, 0}};  // step, training seconds
  std::int64_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    const Json m = data::try_parse_json(line);
    try {
      const std::string kind = m.at("kind").get<std::string>();
      const auto step = m.at("step").get<std::int64_t>();
      if (kind == "train") {
        const auto steps = static_cast<double>(step - clock.back().first);
        clock.emplace_back(step,
                           clock.back().second + steps / m.at("steps_per_second").get<double>());
      } else if (kind == "eval") {
        const double before = points.empty() ? 0 : points.back().eval_seconds;
        points.push_back(
            {step, m.at("loss").get<double>(), 0, before + m.at("seconds").get<double>()});
      }
    } catch (const data::JsonError& error) {
      throw DataError(fmt::format("{}: line {}: not a metric of a run: {}", metrics.string(),
                                  number, data::problem_of(error)));
    }
  }
  for (DevPoint& point : points) {
    const auto after =
        std::lower_bound(clock.begin(), clock.end(), point.step,
                         [](const auto& entry, std::int64_t step) { return entry.first < step; });
    if (after == clock.end()) {
      point.train_seconds = clock.back().second;
    } else if (after == clock.begin()) {
      point.train_seconds = 0;
    } else {
      const auto& [first, first_seconds] = *std::prev(after);
      const double share =
          static_cast<double>(point.step - first) / static_cast<double>(after->first - first);
      point.train_seconds = first_seconds + share * (after->second - first_seconds);
    }
  }
  return points;
}

struct Convergence {
  const DevPoint* best = nullptr;     // of the lowest loss until the stop
  const DevPoint* stopped = nullptr;  // nullptr: the run ended before the rule would have
};

Convergence converge(const std::vector<DevPoint>& points, std::int64_t patience) {
  Convergence c;
  std::int64_t stale = 0;
  for (const DevPoint& point : points) {
    stale = c.best != nullptr && point.loss >= c.best->loss ? stale + 1 : 0;
    if (stale == 0) c.best = &point;
    if (stale < patience) continue;
    c.stopped = &point;
    break;
  }
  return c;
}

/// The share of attention weights that a run drops; that of the recipes where its result does not
/// say it.
double attention_dropout(const Json& result) {
  constexpr double kOfRecipes = 0.1;
  const Json settings = result.value("settings", Json::object());
  const Json setting = settings.value("attention_dropout", Json::object());
  const std::string value = setting.value("value", "");
  return value.empty() ? kOfRecipes : std::atof(value.c_str());
}

/// Folders below `folder` with a result, by name.
std::vector<fs::path> finished_runs(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> runs;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (fs::exists(entry.path() / "result.json")) runs.push_back(entry.path());
  }
  if (error) throw DataError(fmt::format("{}: {}", folder.string(), error.message()));
  if (runs.empty()) {
    throw DataError(
        fmt::format("{}: holds no finished run (no folder with a result.json)", folder.string()));
  }
  std::sort(runs.begin(), runs.end());
  return runs;
}

}  // namespace

Table convergence_table(const fs::path& folder, std::int64_t patience) {
  Table table;
  table.name = "convergence";
  table.title = fmt::format(
      "Until the dev loss had not improved for {} evaluations, on the machine of the runs",
      patience);
  table.columns = {{"run"},
                   {"task"},
                   {"method"},
                   {"best dev loss", "{:.4f}"},
                   {"at kstep", "{:.2f}"},
                   {"stop at kstep", "{:.2f}"},
                   {"train min", "{:.2f}"},
                   {"total min", "{:.2f}"},
                   {"paper kstep", "{:.2f}"},
                   {"paper min", "{:.2f}"},
                   {"test accuracy %", "{:.2f}"}};
  for (const fs::path& run : finished_runs(folder)) {
    const Json result = read_json(run / "result.json");
    std::string task, method;
    double test = 0;
    try {
      task = result.at("task").get<std::string>();
      method = result.at("attention").get<std::string>();
      test = result.at("test_accuracy").get<double>();
    } catch (const data::JsonError& error) {
      throw DataError(fmt::format("{}: not a result of a run: {}", (run / "result.json").string(),
                                  data::problem_of(error)));
    }
    const std::vector<DevPoint> points = dev_points(run / "metrics.jsonl");
    const Convergence c = converge(points, patience);
    const auto kilo = [](const DevPoint* p) {
      return p != nullptr ? Cell(1e-3 * static_cast<double>(p->step)) : Cell();
    };
    const DevPoint* stop = c.stopped;
    const std::string_view row = paper_row(method, attention_dropout(result));
    table.add({run.filename().string(), task, method,
               c.best != nullptr ? Cell(c.best->loss) : Cell(), kilo(c.best), kilo(stop),
               stop != nullptr ? Cell(stop->train_seconds / 60) : Cell(),
               stop != nullptr ? Cell((stop->train_seconds + stop->eval_seconds) / 60) : Cell(),
               paper_figure(PaperFigure::convergence_kilosteps, row, task),
               paper_figure(PaperFigure::convergence_minutes, row, task), 100 * test});
  }
  table.notes = {
      "A run that ended before the rule would have stopped it has no stop. total: with "
      "the evaluations."};
  return table;
}

}  // namespace skytape::train
