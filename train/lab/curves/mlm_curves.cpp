#include "train/lab/curves/mlm_curves.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "data/files/json.hpp"
#include "tensor/core/error.hpp"
#include "train/config/identity.hpp"
#include "train/config/settings.hpp"
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
  const auto choose = [&](const char* key, const std::string& value, const char* origin) {
    choices.settings.push_back({key, value, origin});
  };
  choose("max_length", std::to_string(cell.n), "--lengths");
  choose("batch", std::to_string(options.batch * options.lengths.front() / cell.n), "--batch");
  const auto chosen = [&](std::string_view key) {
    return find_setting(choices.settings, key) != nullptr;
  };
  // Linformer drops no attention weights. Exact attention drops none either, so that attention
  // alone is compared, unless the user says how many: that is said of the exact cells.
  if (exact) {
    if (!chosen(kDropout) && !chosen(kDropoutOfSoftmax)) choose(kDropout, "0", "the figure");
  } else {
    std::erase_if(choices.settings,
                  [](const Setting& c) { return c.key == kDropout || c.key == kDropoutOfSoftmax; });
    choose("features", std::to_string(cell.k), "--shares");
    choose("linformer.sharing", cell.sharing, "the figure");
  }
  if (!chosen("eval_every")) {
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
      return is_exact(curve.cell) && curve.cell.n == n && curve.finished && !curve.points.empty();
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
