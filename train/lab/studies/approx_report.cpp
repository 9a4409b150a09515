// The approximation study's tables and JSON.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "data/files/json.hpp"
#include "train/lab/studies/approx.hpp"
#include "train/process/progress.hpp"

namespace skytape::train {
namespace {

using data::Json;

/// Values of the cells in the order of their first appearance.
template <class T>
std::vector<T> distinct(const std::vector<ApproxCell>& cells, T ApproxCell::*value) {
  std::vector<T> values;
  for (const ApproxCell& cell : cells) {
    if (std::find(values.begin(), values.end(), cell.*value) == values.end()) {
      values.push_back(cell.*value);
    }
  }
  return values;
}

std::vector<std::int64_t> features_of(const std::vector<ApproxCell>& cells) {
  std::vector<std::int64_t> features;
  for (const auto& d : distinct(cells, &ApproxCell::features)) {
    if (d) features.push_back(*d);
  }
  return features;
}

/// The cells of one length and target.
std::vector<ApproxCell> select(const std::vector<ApproxCell>& cells, std::int64_t n,
                               const std::string& target) {
  std::vector<ApproxCell> some;
  for (const ApproxCell& cell : cells) {
    if (cell.n == n && cell.target == target) some.push_back(cell);
  }
  return some;
}

/// The method's cell at d, which for a method without features is its only one.
const ApproxCell* find(const std::vector<ApproxCell>& cells, const std::string& method,
                       std::int64_t d) {
  for (const ApproxCell& cell : cells) {
    if (cell.method == method && cell.features.value_or(d) == d) return &cell;
  }
  return nullptr;
}

enum class Measure { relative, absolute };

constexpr double kPercent = 100;

Estimate value_of(const ApproxCell& cell, Measure measure) {
  if (measure == Measure::absolute) return cell.absolute;
  return {kPercent * cell.relative.mean, kPercent * cell.relative.error};
}

/// "12.3 +- 0.4", mean and standard error; one trial says nothing of the error.
std::string shown(const Estimate& e, std::int64_t trials) {
  return trials > 1 ? fmt::format("{:.4g} +- {:.2g}", e.mean, e.error)
                    : fmt::format("{:.4g}", e.mean);
}

/// Rows: methods, columns: features.
Table table(const std::vector<ApproxCell>& cells, Measure measure) {
  const ApproxCell& any = cells.front();
  const bool relative = measure == Measure::relative;
  Table table{
      fmt::format("{}-{}-{}", any.target, any.n, relative ? "relative" : "absolute"),
      fmt::format("Error against {} at n = {}, {}: {}{}", any.target, any.n,
                  relative ? "% of the exact output's spectral norm" : "spectral norm",
                  any.trials > 1 ? "mean +- standard error of " : "", counted(any.trials, "trial")),
      {{"method"}},
      {},
      {}};
  const std::vector<std::int64_t> features = features_of(cells);
  for (const std::int64_t d : features) table.columns.push_back({fmt::format("d = {}", d)});
  if (features.empty()) table.columns.push_back({"any d"});
  for (const std::string& method : distinct(cells, &ApproxCell::method)) {
    std::vector<Cell> row = {method};
    for (std::size_t c = 1; c < table.columns.size(); ++c) {
      const ApproxCell* cell = find(cells, method, features.empty() ? 0 : features[c - 1]);
      const Estimate e = value_of(*cell, measure);
      row.emplace_back(c > 1 && !cell->features ? "same" : shown(e, cell->trials));
      if (c == 1 && cell->trials != any.trials) {
        row[0] = fmt::format("{} ({})", method, counted(cell->trials, "trial"));
      }
    }
    table.add(std::move(row));
  }
  table.notes.push_back(
      fmt::format("Spectral norm of the exact output: {:.5g}. same: the method "
                  "has no number of features.",
                  any.exact_norm.mean));
  if (any.examples < any.trials) {
    table.notes.push_back(fmt::format(
        "The source has {} of n positions: the trials repeat them with other draws, and standard "
        "errors say nothing of further examples.",
        counted(any.examples, "example")));
  }
  return table;
}

/// null for what is not finite, which JSON cannot say.
Json number(double value) { return std::isfinite(value) ? Json(value) : Json(); }

}  // namespace

std::vector<Table> tables(const std::vector<ApproxCell>& cells) {
  std::vector<Table> all;
  for (const std::int64_t n : distinct(cells, &ApproxCell::n)) {
    for (const std::string& target : distinct(cells, &ApproxCell::target)) {
      const std::vector<ApproxCell> some = select(cells, n, target);
      if (some.empty()) continue;
      all.push_back(table(some, Measure::relative));
      all.push_back(table(some, Measure::absolute));
    }
  }
  return all;
}

Json to_json(const std::vector<ApproxCell>& cells) {
  Json results = Json::array();
  for (const ApproxCell& c : cells) {
    results.push_back({{"attention", c.method},
                       {"target", c.target},
                       {"n", c.n},
                       {"features", c.features ? Json(*c.features) : Json()},
                       {"trials", c.trials},
                       {"examples", c.examples},
                       {"error_mean", number(c.absolute.mean)},
                       {"error_se", c.trials > 1 ? number(c.absolute.error) : Json()},
                       {"relative_mean", number(c.relative.mean)},
                       {"relative_se", c.trials > 1 ? number(c.relative.error) : Json()},
                       {"exact_norm_mean", number(c.exact_norm.mean)}});
  }
  return results;
}

}  // namespace skytape::train
