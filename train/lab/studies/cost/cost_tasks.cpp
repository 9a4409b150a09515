// Step time and memory of each method on each task.
//
// A few full-length examples are timed; time and memory of the recipe's batch follow, since both
// grow in proportion to the examples beyond what a step holds whatever their number. Memory is that
// of steps that compute their examples at once, so that it depends on no cache.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "data/task.hpp"
#include "train/lab/papers/paper_costs.hpp"
#include "train/lab/studies/cost/cost.hpp"
#include "train/process/progress.hpp"

namespace skytape::train {
namespace {

constexpr double kGiga = 1e9;

/// The units of the tables of a recipe's paper.
struct PaperUnit {
  std::string title;
  double per_step_second;  // table entries for a second per step
  PaperFigure time;
  PaperFigure memory;  // GB, or the examples that the Skeinformer paper computed at once
};
PaperUnit unit_of(const std::string& recipe) {
  if (recipe == "skeinformer") {
    return {"min/1k steps", 1000.0 / 60, PaperFigure::skeinformer_minutes,
            PaperFigure::skeinformer_examples};
  }
  return {"h/50k steps", 50000.0 / 3600, PaperFigure::skyformer_hours,
          PaperFigure::skyformer_gigabytes};
}

/// One method on one task.
struct Measurement {
  std::string task, method;
  std::string_view row;                     // of the papers' tables
  double example_ms = 0;                    // of a step
  double fixed_bytes = 0, per_example = 0;  // memory = fixed + examples at once * per_example
  std::int64_t batch = 0, microbatch = 0;   // of the recipe: examples per step, and at once
  std::optional<std::int64_t> fitting;      // most examples at once within the limit; 0: none
};

/// Returns the peak memory of one training step that computes `examples` together.
double peak_of(BenchCase c, std::int64_t examples) {
  c.batch = examples;
  return static_cast<double>(peak_at_once(c));
}

/// Most examples, at most `most`, whose step stays within `limit` bytes: a guess from the measured
/// memory per example, checked by a real step and lowered until one fits.
std::int64_t largest_batch(const BenchCase& c, const Measurement& m, double limit,
                           std::int64_t most) {
  const double guess = std::floor((limit - m.fixed_bytes) / m.per_example);
  auto examples = static_cast<std::int64_t>(std::clamp(guess, 0.0, static_cast<double>(most)));
  while (examples > 0 && peak_of(c, examples) > limit) {
    examples = std::min(examples - 1, examples * 15 / 16);
  }
  return examples;
}

Measurement measure(const CostOptions& options, const std::string& task,
                    const std::string& method) {
  const RunConfig config = recipe_config(options, method, task);
  BenchCase c = bench_case(options, method, config.batches.nominal_length, options.batch);
  c.task = task;
  c.recipe = options.recipe;
  c.attention_alone = false;
  std::string_view row = method;
  for (const Setting& s : config.settings) {
    if (s.key == "features") c.features = std::stoll(s.value);
    if (s.key == "attention_dropout") row = paper_row(method, std::stod(s.value));
  }
  const auto examples = static_cast<double>(c.batch);
  const double ms = run_bench(c).step->min_ms / examples;
  const double once = peak_of(c, c.batch), twice = peak_of(c, 2 * c.batch);
  Measurement m{task,
                method,
                row,
                ms,
                2 * once - twice,
                (twice - once) / examples,
                config.batches.batch,
                config.microbatch(),
                std::nullopt};
  if (options.limit_gb) m.fitting = largest_batch(c, m, *options.limit_gb * kGiga, m.batch);
  return m;
}

std::vector<Measurement> measure_all(const CostOptions& options) {
  std::vector<Measurement> all;
  Progress progress;
  const auto total = static_cast<std::int64_t>(options.tasks.size() * options.methods.size());
  for (const std::string& task : options.tasks) {
    for (const std::string& method : options.methods) {
      progress.at("tasks", static_cast<std::int64_t>(all.size()), total);
      all.push_back(measure(options, task, method));
    }
  }
  return all;
}

}  // namespace

BenchCase bench_case(const CostOptions& options, const std::string& method, std::int64_t n,
                     std::int64_t batch) {
  BenchCase c;
  c.attention = method;
  c.device = options.device;
  c.precision = options.precision;
  c.size = options.size;
  c.layers = options.layers;
  c.n = n;
  c.batch = batch;
  c.steps = options.steps;
  c.patience_seconds = options.patience_seconds;
  return c;
}

Table task_table(const CostOptions& options) {
  const PaperUnit unit = unit_of(options.recipe);
  const std::vector<Measurement> all = measure_all(options);
  Table table;
  table.name = "tasks";
  table.title = fmt::format("Training steps on full-length examples, recipe {}", options.recipe);
  table.columns = {{"task"},
                   {"method"},
                   {"batch", "{:.0f}"},
                   {"ms/example", "{:.2f}"},
                   {unit.title, "{:.2f}"},
                   {"paper", "{:.2f}"},
                   {"of softmax", "{:.2f}"},
                   {"paper", "{:.2f}"},
                   {"MB/example", "{:.2f}"},
                   {"at once", "{:.0f}"},
                   {"GB", "{:.2f}"},
                   {options.recipe == "skeinformer" ? "paper's bz" : "paper's GB", "{:g}"}};
  if (options.limit_gb) {
    table.columns.push_back({fmt::format("fit {:g} GB", *options.limit_gb), "{:.0f}"});
  }
  const auto ratio = [](std::optional<double> a, std::optional<double> b) {
    return a && b ? Cell(*a / *b) : Cell();
  };
  for (const Measurement& m : all) {
    std::optional<double> softmax_ms;
    for (const Measurement& other : all) {
      if (other.task == m.task && other.method == "softmax") softmax_ms = other.example_ms;
    }
    const auto batch = static_cast<double>(m.batch), microbatch = static_cast<double>(m.microbatch);
    const auto paper = paper_figure(unit.time, m.row, m.task);
    std::vector<Cell> row = {m.task,
                             m.method,
                             batch,
                             m.example_ms,
                             1e-3 * m.example_ms * batch * unit.per_step_second,
                             paper,
                             ratio(m.example_ms, softmax_ms),
                             ratio(paper, paper_figure(unit.time, "softmax", m.task)),
                             1e-6 * m.per_example,
                             microbatch,
                             (m.fixed_bytes + m.per_example * microbatch) / kGiga,
                             paper_figure(unit.memory, m.row, m.task)};
    if (options.limit_gb) row.push_back(m.fitting);
    table.add(std::move(row));
  }
  table.notes = {
      fmt::format(
          "{} examples timed, the fastest of {} steps; time and memory of the recipe's "
          "batch in proportion. At once: the recipe's batch over its accumulation, as a GPU "
          "computes it. MB/example: from the peaks of steps that compute {} and {} examples "
          "at once. GB: of those at once, with the model and its optimiser.",
          options.batch, options.steps, options.batch, 2 * options.batch),
      "paper: on a V100 of 16 GB, where softmax trades time for memory by checkpointing."};
  if (options.device == Device::cpu) {
    table.notes.push_back(fmt::format(
        "A run on this CPU computes {} positions at a time, or one example, and needs less.",
        cache_positions()));
  }
  return table;
}

}  // namespace skytape::train
