#include "train/lab/curves/mlm_curves.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "data/files/json.hpp"
#include "tensor/core/error.hpp"
#include "train/config/identity.hpp"
#include "train/run/result.hpp"
#include "train/run/run_folder.hpp"

namespace skytape::train {
namespace {

namespace fs = std::filesystem;
using data::Json;

constexpr const char* kSharings[] = {"none", "headwise", "keyvalue", "layerwise"};
constexpr const char* kUsualSharing = "keyvalue";  // where sharings are not what is compared
constexpr std::int64_t kEvaluations = 20;          // points of a curve, unless the user says others
constexpr const char *kDropout = "attention_dropout",
                     *kDropoutOfSoftmax = "softmax.attention_dropout";  // one key, two spellings

bool is_exact(const CurveCell& cell) { return cell.k == 0; }

void check(const CurvesOptions& options) {
  for (std::size_t i = 0; i < options.lengths.size(); ++i) {
    const std::int64_t n = options.lengths[i];
    if (i > 0 && n <= options.lengths[i - 1]) {
      throw UsageError(fmt::format("--lengths: expected ascending ones, got {} behind {}", n,
                                   options.lengths[i - 1]));
    }
    if (options.batch * options.lengths.front() % n != 0) {
      throw UsageError(fmt::format(
          "--batch: {} sequences of {} tokens are no whole number of those of {} tokens",
          options.batch, options.lengths.front(), n));
    }
    for (const std::int64_t share : options.shares) {
      if (n % share == 0) continue;
      throw UsageError(fmt::format("--shares: n = {} is no multiple of {}", n, share));
    }
  }
}

GridCell make_run(const CurvesOptions& options, const CurveCell& cell) {
  const bool exact = is_exact(cell);
  GridCell run;
  run.folder = exact ? fmt::format("n{}-softmax", cell.n)
                     : fmt::format("n{}-linformer-k{}-{}", cell.n, cell.k, cell.sharing);
  Choices& choices = run.choices = options.base;
  run.recipe = find_recipe(choices.recipe);
  choices.task = "corpus";
  choices.attention = exact ? "softmax" : "linformer";
  choices.data_root = options.out / "data" / fmt::format("n{}", cell.n);
  const auto choose = [&](const char* key, const std::string& value, const char* said_by) {
    choices.values.push_back({key, value, said_by});
  };
  choose("max_length", std::to_string(cell.n), "--lengths");
  choose("batch", std::to_string(options.batch * options.lengths.front() / cell.n), "--batch");
  const auto said = [&](std::string_view key) {
    return std::any_of(choices.values.begin(), choices.values.end(),
                       [&](const Choice& c) { return c.key == key; });
  };
  // Linformer drops no attention weights. Exact attention drops none either, so that attention
  // alone is compared, unless the user says how many: that is said of the exact cells.
  if (exact) {
    if (!said(kDropout) && !said(kDropoutOfSoftmax)) choose(kDropout, "0", "the figure");
  } else {
    std::erase_if(choices.values,
                  [](const Choice& c) { return c.key == kDropout || c.key == kDropoutOfSoftmax; });
    choose("features", std::to_string(cell.k), "--shares");
    choose("linformer.sharing", cell.sharing, "the figure");
  }
  if (!said("eval_every")) {
    const RunConfig all = pretraining_of(resolve(for_pretraining(choices), run.recipe));
    choose("eval_every", std::to_string(std::max<std::int64_t>(1, all.steps() / kEvaluations)),
           "the figure");
  }
  run.config = pretraining_of(resolve(for_pretraining(choices), run.recipe));
  if (run.config.steps() == 0) {
    throw UsageError("mlm-curves: expected --steps, the number of steps of each training");
  }
  return run;
}

std::string k_name(const CurveCell& cell) {
  return is_exact(cell) ? "exact" : fmt::format("k = {}", cell.k);
}

/// A panel of the curves that `wanted` takes, against what `x_of` reads.
LinePanel panel(const std::vector<Curve>& curves, const std::string& title, const Axis& x,
                const std::function<double(const CurvePoint&)>& x_of,
                const std::function<bool(const CurveCell&)>& wanted,
                const std::function<std::string(const CurveCell&)>& name_of) {
  LinePanel panel{title, x, {"perplexity (1)", Scale::log10, {}, {}}, {}};
  for (const Curve& curve : curves) {
    if (!wanted(curve.cell) || curve.points.empty()) continue;
    Series series{name_of(curve.cell), {}, {}, {}};
    for (const CurvePoint& point : curve.points) {
      series.x.push_back(x_of(point));
      series.y.push_back(point.perplexity);
    }
    panel.series.push_back(std::move(series));
  }
  return panel;
}

}  // namespace

std::vector<CurveCell> curve_cells(const CurvesOptions& options) {
  check(options);
  std::vector<CurveCell> cells;
  const auto add = [&](std::int64_t n, std::int64_t k, const std::string& sharing) {
    const bool there = std::any_of(cells.begin(), cells.end(), [&](const CurveCell& cell) {
      return cell.n == n && cell.k == k && cell.sharing == sharing;
    });
    if (there) return;
    CurveCell cell{n, k, sharing, {}};
    cell.run = make_run(options, cell);
    cells.push_back(std::move(cell));
  };
  const std::int64_t shortest = options.lengths.front();
  const std::int64_t fixed = shortest / options.shares.front();
  for (const std::int64_t n : options.lengths) {
    add(n, 0, "");
    for (const std::int64_t share : options.shares) add(n, n / share, kUsualSharing);
    add(n, fixed, kUsualSharing);
  }
  for (const char* sharing : kSharings) add(shortest, fixed, sharing);
  return cells;
}

Curve read_curve(const CurveCell& cell, const fs::path& out) {
  Curve curve;
  curve.cell = cell;
  const fs::path folder = out / cell.run.folder;
  if (!fs::exists(config_file(folder))) return curve;
  Json wanted = wanted_config(cell.run);
  const Json there = read_config(folder);
  if (!wanted.contains("data")) wanted["data"] = data::member(there, "data");
  if (!differences(there, wanted).empty()) return curve;
  for (const Json& line : read_metrics(folder / "metrics.jsonl")) {
    if (line.value("kind", "") != "eval") continue;
    curve.points.push_back({line.at("step").get<std::int64_t>(),
                            line.at("train_seconds").get<double>(),
                            line.at("perplexity").get<double>()});
  }
  const auto result = finished_result(folder, wanted);
  curve.finished = result.has_value();
  if (curve.finished) {
    curve.steps_per_second = result->at("steps_per_second").get<double>();
    curve.tokens_per_second = result->at("tokens_per_second").get<double>();
    curve.peak_bytes = result->at("peak_bytes").get<double>();
  }
  return curve;
}

Table curve_table(const std::vector<Curve>& curves) {
  Table table{"mlm-curves",
              "Masked language models: perplexity of the held-out documents' hidden tokens",
              {{"n", "{:.0f}"},
               {"k"},
               {"sharing"},
               {"steps", "{:.0f}"},
               {"perplexity", "{:.3f}"},
               {"% above exact", "{:+.1f}"},
               {"seconds", "{:.0f}"},
               {"steps/s", "{:.3f}"},
               {"tokens/s", "{:.0f}"},
               {"peak MB", "{:.0f}"}},
              {},
              {}};
  const auto exact_at = [&](std::int64_t n) {
    const auto found = std::find_if(curves.begin(), curves.end(), [&](const Curve& curve) {
      return is_exact(curve.cell) && curve.cell.n == n && curve.finished;
    });
    return found == curves.end() ? nullptr : &*found;
  };
  bool open = false;
  for (const Curve& curve : curves) {
    std::vector<Cell> row = {curve.cell.n,
                             is_exact(curve.cell) ? Cell("exact") : Cell(curve.cell.k),
                             is_exact(curve.cell) ? Cell() : Cell(curve.cell.sharing)};
    if (curve.finished && !curve.points.empty()) {
      const CurvePoint& last = curve.points.back();
      const Curve* const exact = exact_at(curve.cell.n);
      row.insert(
          row.end(),
          {last.step, last.perplexity,
           exact == nullptr || exact == &curve
               ? Cell()
               : Cell(100 * (last.perplexity / exact->points.back().perplexity - 1)),
           last.seconds, curve.steps_per_second, curve.tokens_per_second, 1e-6 * curve.peak_bytes});
    } else {
      open = true;
      row.resize(table.columns.size());
    }
    table.add(std::move(row));
  }
  if (open) table.notes.emplace_back("Rows without figures are not finished.");
  return table;
}

std::vector<Figure> curve_figures(const std::vector<Curve>& curves) {
  const std::int64_t shortest = curves.front().cell.n;
  // The second cell is Linformer's first: the k that all lengths share.
  const std::int64_t fixed = curves.at(1).cell.k;
  std::vector<std::int64_t> lengths;
  for (const Curve& curve : curves) {
    if (lengths.empty() || curve.cell.n > lengths.back()) lengths.push_back(curve.cell.n);
  }
  const auto figure = [&](const char* name, const char* title, const Axis& x, const auto& x_of) {
    Figure result{name, fmt::format("Masked language models, perplexity against {}", title), {}, 2};
    const auto add = [&](const std::string& what, const auto& wanted, const auto& name_of) {
      result.panels.emplace_back(panel(curves, what, x, x_of, wanted, name_of));
    };
    const auto usual = [](const CurveCell& c) { return c.sharing == kUsualSharing; };
    for (const std::int64_t n : lengths) {
      add(
          fmt::format("n = {}", n),
          [&](const CurveCell& c) { return c.n == n && (is_exact(c) || usual(c)); }, k_name);
    }
    add(
        fmt::format("n = {}, k = {}: sharing", shortest, fixed),
        [&](const CurveCell& c) { return c.n == shortest && c.k == fixed; },
        [](const CurveCell& c) { return c.sharing; });
    if (lengths.size() > 1) {
      add(
          fmt::format("k = {} at every n", fixed),
          [&](const CurveCell& c) { return c.k == fixed && usual(c); },
          [](const CurveCell& c) { return fmt::format("n = {}", c.n); });
    }
    return result;
  };
  return {figure("mlm-steps", "steps", {"steps (1)"},
                 [](const CurvePoint& p) { return static_cast<double>(p.step); }),
          figure("mlm-seconds", "seconds of training", {"training (s)"},
                 [](const CurvePoint& p) { return p.seconds; })};
}

std::string curve_csv(const std::vector<Curve>& curves) {
  std::string text = "n,k,sharing,step,seconds,perplexity\n";
  for (const Curve& curve : curves) {
    for (const CurvePoint& point : curve.points) {
      text += fmt::format("{},{},{},{},{},{}\n", curve.cell.n,
                          is_exact(curve.cell) ? "exact" : std::to_string(curve.cell.k),
                          curve.cell.sharing, point.step, point.seconds, point.perplexity);
    }
  }
  return text;
}

}  // namespace skytape::train
