// Step time against length, and where methods become cheaper than exact attention.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "attention/registry.hpp"
#include "train/lab/studies/cost/cost.hpp"
#include "train/process/progress.hpp"

namespace skytape::train {
namespace {

LengthStudy::Times measure_times(const CostOptions& options, const std::string& method,
                                 std::int64_t n, std::int64_t batch) {
  BenchCase c = bench_case(options, method, n, batch);
  c.features = options.features;
  const BenchResult r = run_bench(c);
  return {r.step->min_ms, r.attention_forward_backward->min_ms, r.peak_bytes};
}

/// A method's times of one example, by ascending length.
std::vector<double> attention_times(const LengthStudy& study, const std::string& method) {
  std::vector<double> times;
  for (const LengthStudy::Row& row : study.rows) {
    if (row.method == method) times.push_back(row.one_example.attention_ms);
  }
  return times;
}

/// "at all lengths", "from 900 on", "not up to 8192".
std::string to_text(const Crossing& crossing, double longest) {
  if (crossing.where == Crossing::Where::below) return "at all lengths";
  if (crossing.where == Crossing::Where::at) return fmt::format("from {:.0f} on", crossing.x);
  return fmt::format("not up to {:.0f}", longest);
}

}  // namespace

LengthStudy measure_lengths(const CostOptions& options) {
  LengthStudy study;
  study.tokens = options.tokens;
  Progress progress;
  const auto total = static_cast<std::int64_t>(options.methods.size() * options.lengths.size());
  for (const std::string& method : options.methods) {
    for (const std::int64_t n : options.lengths) {
      progress.at("lengths", std::ssize(study.rows), total);
      const std::int64_t batch = options.tokens / n;
      const LengthStudy::Times one = measure_times(options, method, n, 1);
      study.rows.push_back({method, n, batch, one, batch == 1 ? one : LengthStudy::Times()});
      if (batch > 1) study.rows.back().fixed_tokens = measure_times(options, method, n, batch);
    }
  }
  return study;
}

Table length_table(const LengthStudy& study) {
  Table table;
  table.name = "length";
  table.title = fmt::format("Training steps by length: of one example, and of a batch of {} tokens",
                            study.tokens);
  table.columns = {{"method"},
                   {"n", "{:.0f}"},
                   {"step ms", "{:.1f}"},
                   {"attention ms", "{:.2f}"},
                   {"peak MB", "{:.1f}"},
                   {"batch", "{:.0f}"},
                   {"its step ms", "{:.1f}"},
                   {"attention ms", "{:.2f}"},
                   {"peak MB", "{:.1f}"}};
  const auto megabytes = [](std::int64_t bytes) { return 1e-6 * static_cast<double>(bytes); };
  for (const auto& [method, n, batch, one, fixed] : study.rows) {
    std::vector<Cell> row = {method, n, one.step_ms, one.attention_ms, megabytes(one.peak_bytes)};
    if (batch > 0) {
      row.insert(row.end(),
                 {batch, fixed.step_ms, fixed.attention_ms, megabytes(fixed.peak_bytes)});
    }
    row.resize(table.columns.size());
    table.add(std::move(row));
  }
  table.notes = {"attention: one layer's, forward and backward. Fastest of the repetitions."};
  return table;
}

Crossing crossing(const std::vector<double>& x, const std::vector<double>& first,
                  const std::vector<double>& second) {
  ENSURE(x.size() == first.size() && x.size() == second.size(), "crossing: ", x.size(), " x, ",
         first.size(), " and ", second.size(), " y");
  std::size_t from = x.size();  // the first point from which on the first curve is below
  while (from > 0 && first[from - 1] < second[from - 1]) --from;
  if (from == x.size()) return {Crossing::Where::never, 0};
  if (from == 0) return {Crossing::Where::below, 0};
  const auto gap = [&](std::size_t i) { return std::log(first[i] / second[i]); };
  const double share = gap(from - 1) / (gap(from - 1) - gap(from));
  const double step = std::log(x[from] / x[from - 1]);
  return {Crossing::Where::at, x[from - 1] * std::exp(share * step)};
}

Table crossover_table(const CostOptions& options, const LengthStudy& study) {
  Table table;
  table.name = "crossover";
  table.title = "Lengths from which attention is cheaper than softmax's, forward and backward";
  table.columns = {{"method"}, {"by operations"}, {"by time"}};
  std::vector<double> measured(options.lengths.begin(), options.lengths.end());
  const std::vector<double> softmax_times = attention_times(study, "softmax");
  constexpr std::int64_t kLongest = 65536;
  std::vector<double> lengths, softmax_operations;
  const auto head_width = static_cast<double>(
      configure(bench_case(options, "softmax", options.lengths.back(), 1)).model.width_of_head());
  const auto operations = [&](const std::string& method, double n) {
    const attention::Cost cost =
        attention::find(method).cost_at({n, static_cast<double>(options.features), head_width});
    return cost.forward + cost.backward;
  };
  for (std::int64_t n = 64; n < kLongest; n += std::max<std::int64_t>(1, n / 128)) {
    lengths.push_back(static_cast<double>(n));
  }
  lengths.push_back(kLongest);
  for (const double n : lengths) softmax_operations.push_back(operations("softmax", n));
  for (const std::string& method : options.methods) {
    if (method == "softmax") continue;
    std::vector<double> work;
    for (const double n : lengths) work.push_back(operations(method, n));
    const std::vector<double> times = attention_times(study, method);
    const bool comparable = times.size() == softmax_times.size() && !times.empty();
    table.add({method, to_text(crossing(lengths, work, softmax_operations), lengths.back()),
               comparable ? Cell(to_text(crossing(measured, times, softmax_times), measured.back()))
                          : Cell()});
  }
  table.notes = {fmt::format(
      "by operations: multiply-adds, from n = 64 on, {} features; by time: one example, one layer, "
      "interpolated between the lengths that were timed.",
      options.features)};
  return table;
}

}  // namespace skytape::train
