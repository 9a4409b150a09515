// Time until early stopping, from what finished runs wrote.
#include <fmt/format.h>

#include "data/files/json.hpp"
#include "data/files/source.hpp"
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

/// All evaluations of a run, in order.
std::vector<DevPoint> dev_points(const fs::path& metrics) {
  std::vector<DevPoint> points;
  for (const Json& m : read_metrics(metrics)) {
    if (m.value("kind", "") != "eval") continue;
    const double before = points.empty() ? 0 : points.back().eval_seconds;
    try {
      points.push_back({m.at("step").get<std::int64_t>(), m.at("loss").get<double>(),
                        m.at("train_seconds").get<double>(),
                        before + m.at("seconds").get<double>()});
    } catch (const data::JsonError& error) {
      throw DataError(fmt::format("{}: not an evaluation of a run: {}, got {}", metrics.string(),
                                  data::problem_of(error), data::json_text(m)));
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
  std::vector<fs::path> runs;
  for (const auto& entry : data::entries_of(folder)) {
    if (fs::exists(entry.path() / "result.json")) runs.push_back(entry.path());
  }
  if (runs.empty()) {
    throw DataError(
        fmt::format("{}: holds no finished run (no folder with a result.json)", folder.string()));
  }
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
