// Step time against length, and where methods become cheaper than exact attention.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "attention/registry.hpp"
#include "train/process/progress.hpp"
#include "train/studies/cost/cost.hpp"

namespace skytape::train {
namespace {

constexpr double kHeadWidth = 32;

LengthStudy::Row measure_row(const CostOptions& options, const std::string& method, std::int64_t n,
                             std::int64_t batch) {
  BenchCase c;
  c.attention = method;
  c.device = options.device;
  c.precision = options.precision;
  c.n = n;
  c.batch = batch;
  c.features = options.features;
  c.steps = options.steps;
  c.patience_seconds = options.patience_seconds;
  const BenchResult r = run_bench(c);
  return {method, n, batch, r.step->min_ms, r.attention_forward_backward->median_ms, r.peak_bytes};
}

/// A method's times, by ascending length.
std::vector<double> attention_times(const std::vector<LengthStudy::Row>& rows,
                                    const std::string& method) {
  std::vector<double> times;
  for (const LengthStudy::Row& row : rows) {
    if (row.method == method) times.push_back(row.attention_ms);
  }
  return times;
}

/// "at all lengths", "from 900 on", "not up to 8192".
std::string to_text(const Crossing& crossing, double longest) {
  if (crossing.where == Crossing::Where::below) return "at all lengths";
  if (crossing.where == Crossing::Where::at) return fmt::format("from {:.0f} on", crossing.x);
  return fmt::format("not up to {:.0f}", longest);
}

LinePanel panel(const std::vector<LengthStudy::Row>& rows, const std::string& title) {
  LinePanel panel{title, {"tokens in a sequence", Scale::log2}, {"step (ms)", Scale::log10}, {}};
  for (const LengthStudy::Row& row : rows) {
    if (panel.series.empty() || panel.series.back().name != row.method) {
      panel.series.push_back({row.method, {}, {}, {}});
    }
    panel.series.back().x.push_back(static_cast<double>(row.n));
    panel.series.back().y.push_back(row.step_ms);
  }
  return panel;
}

}  // namespace

LengthStudy measure_lengths(const CostOptions& options) {
  LengthStudy study;
  study.tokens = options.tokens;
  Progress progress;
  std::int64_t done = 0;
  const auto total = static_cast<std::int64_t>(options.methods.size() * options.lengths.size());
  for (const std::string& method : options.methods) {
    for (const std::int64_t n : options.lengths) {
      progress.at("lengths", done++, total);
      study.one_example.push_back(measure_row(options, method, n, 1));
      const std::int64_t batch = options.tokens / n;
      if (batch == 0) continue;
      study.fixed_tokens.push_back(batch == 1 ? study.one_example.back()
                                              : measure_row(options, method, n, batch));
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
  for (const LengthStudy::Row& one : study.one_example) {
    const auto fixed = std::find_if(
        study.fixed_tokens.begin(), study.fixed_tokens.end(),
        [&](const LengthStudy::Row& row) { return row.method == one.method && row.n == one.n; });
    const bool there = fixed != study.fixed_tokens.end();
    const auto number = [&](double value) { return there ? Cell(value) : Cell(); };
    table.add({one.method, static_cast<double>(one.n), one.step_ms, one.attention_ms,
               1e-6 * static_cast<double>(one.peak_bytes),
               number(there ? static_cast<double>(fixed->batch) : 0),
               number(there ? fixed->step_ms : 0), number(there ? fixed->attention_ms : 0),
               number(there ? 1e-6 * static_cast<double>(fixed->peak_bytes) : 0)});
  }
  table.notes = {"attention: one layer's, forward and backward. Fastest of the repetitions."};
  return table;
}

Figure length_figure(const LengthStudy& study) {
  return {"cost_length",
          "Training step against length",
          {panel(study.one_example, "one example"),
           panel(study.fixed_tokens, fmt::format("{} tokens", study.tokens))},
          2};
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
  const std::vector<double> softmax_times = attention_times(study.one_example, "softmax");
  constexpr std::int64_t kLongest = 65536;
  std::vector<double> lengths, softmax_operations;
  const auto operations = [&](const std::string& method, double n) {
    const attention::Cost cost =
        attention::find(method).cost_at({n, static_cast<double>(options.features), kHeadWidth});
    return cost.forward + cost.backward;
  };
  for (std::int64_t n = 64; n < kLongest; n += std::max<std::int64_t>(1, n / 1024)) {
    lengths.push_back(static_cast<double>(n));
  }
  lengths.push_back(kLongest);
  for (const double n : lengths) softmax_operations.push_back(operations("softmax", n));
  for (const std::string& method : options.methods) {
    if (method == "softmax") continue;
    std::vector<double> work;
    for (const double n : lengths) work.push_back(operations(method, n));
    const std::vector<double> times = attention_times(study.one_example, method);
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
