// The tables of bench --kernels about the kernels that were measured.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "data/files/json.hpp"
#include "tensor/core/error.hpp"
#include "train/lab/bench/bench_kernels.hpp"
#include "train/lab/bench/bench_parts.hpp"

namespace skytape::train {

using data::Json;

namespace {

/// The times of several rows together.
struct Sum {
  double us = 0, gap_us = 0;
  std::int64_t kernels = 0;
  void add(const KernelRow& row) {
    us += row.added_us;
    gap_us += row.gap_us;
    ++kernels;
  }
};

/// A number, or nothing where it would say nothing.
Cell some(double value) { return value > 0 ? Cell(value) : Cell(); }
Cell percent(double value, double whole) { return some(whole > 0 ? 100 * value / whole : 0); }

std::string model_of(const BenchCase& c) {
  return c.papers_model ? "the papers' model" : "recipe " + c.recipe;
}

/// Sums over the rows with the same key, the longest first.
template <class Key>
Table sums(const char* name, std::string title, const StepKernels& step, const Key& key) {
  std::map<std::string, Sum> groups;
  for (const KernelRow& row : step.rows) groups[key(row)].add(row);
  std::vector<std::pair<std::string, Sum>> sorted(groups.begin(), groups.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second.us > b.second.us; });
  Table table;
  table.name = name;
  table.title = std::move(title);
  table.columns = {
      {name}, {"kernels", "{:.0f}"}, {"us", "{:.1f}"}, {"% of sum", "{:.1f}"}, {"gaps", "{:.1f}"}};
  for (const auto& [group, sum] : sorted) {
    table.add({group, static_cast<double>(sum.kernels), sum.us, percent(sum.us, step.sum_us()),
               sum.gap_us});
  }
  return table;
}

/// Returns how the kernels of a case were timed, and which of them have no part.
std::vector<std::string> notes_of(const BenchCase& c, const StepKernels& step) {
  std::vector<std::string> notes = {
      fmt::format(
          "Traced by CUPTI: medians of {} replays of the step's graph. \"adds\", from which sums "
          "come: without the time in which a kernel that began before still ran.",
          c.steps),
      fmt::format("Sum of kernels {:.1f} us, of gaps {:.1f} us; a step that nobody traces takes "
                  "{:.1f} us.",
                  step.sum_us(), step.gaps_us(), step.step_us)};
  const auto unknown = std::count_if(step.rows.begin(), step.rows.end(),
                                     [](const KernelRow& row) { return row.part == kNoPart; });
  if (unknown > 0) {
    notes.push_back(
        fmt::format("{} kernels are NOT among those of a step that was submitted op by op, so that "
                    "their part is unknown.",
                    unknown));
  }
  return notes;
}

}  // namespace

std::vector<Table> kernel_tables(const BenchCase& c, const StepKernels& step) {
  Table all;
  all.name = "kernels";
  all.title = fmt::format("Kernels of a training step: {}, {}, n = {}, batch {}, {}", c.attention,
                          c.precision, c.n, c.batch, model_of(c));
  all.columns = {{"kernel"},
                 {"part"},
                 {"us", "{:.2f}"},
                 {"gap", "{:.2f}"},
                 {"adds", "{:.2f}"},
                 {"blocks", "{:.0f}"},
                 {fmt::format("blocks/{}", step.multiprocessors), "{:.2f}"},
                 {"threads", "{:.0f}"},
                 {"regs", "{:.0f}"},
                 {"shared", "{:.0f}"}};
  for (const KernelRow& row : step.rows) {
    all.add({row.name, row.part, row.us, row.gap_us, row.added_us,
             some(static_cast<double>(row.blocks)),
             some(static_cast<double>(row.blocks) / std::max(1, step.multiprocessors)),
             some(static_cast<double>(row.threads)), some(static_cast<double>(row.registers)),
             some(static_cast<double>(row.shared_bytes))});
  }
  all.notes = notes_of(c, step);
  return {all,
          sums("part", "By the op that they belong to, forward and backward", step,
               [](const KernelRow& row) { return row.part; }),
          sums("kernel", "By kernel and op", step,
               [](const KernelRow& row) { return row.name + ", " + row.part; })};
}

Table summary_table(const std::vector<std::pair<BenchCase, StepKernels>>& steps) {
  Table table;
  table.name = "steps";
  table.title = "Steps, their kernels and their parts, in us";
  table.columns = {{"attention"},         {"precision"},           {"n", "{:.0f}"},
                   {"kernels", "{:.0f}"}, {"step", "{:.0f}"},      {"sum", "{:.0f}"},
                   {"gaps", "{:.0f}"},    {"attention", "{:.0f}"}, {"products", "{:.0f}"},
                   {"rest", "{:.0f}"},    {"optimiser", "{:.0f}"}, {"data", "{:.0f}"}};
  for (const auto& [c, step] : steps) {
    OpSeconds seconds;
    for (const KernelRow& row : step.rows) seconds[row.part] += 1e-6 * row.added_us;
    const StepParts ms = step_parts(seconds, 1);
    table.add({c.attention, c.precision, static_cast<double>(c.n),
               static_cast<double>(step.rows.size()), step.step_us, step.sum_us(), step.gaps_us(),
               1e3 * ms.attention, 1e3 * ms.products, 1e3 * ms.rest, 1e3 * ms.optimiser,
               1e3 * ms.data});
  }
  return table;
}

Json to_json(const BenchCase& c, const StepKernels& step) {
  Json kernels = Json::array();
  for (const KernelRow& row : step.rows) {
    kernels.push_back({{"name", row.name},
                       {"part", row.part},
                       {"us", row.us},
                       {"gap_us", row.gap_us},
                       {"added_us", row.added_us},
                       {"blocks", row.blocks},
                       {"threads", row.threads},
                       {"registers", row.registers},
                       {"shared_bytes", row.shared_bytes}});
  }
  return {{"attention", c.attention},
          {"model", model_of(c)},
          {"precision", c.precision},
          {"n", c.n},
          {"batch", c.batch},
          {"features", c.features},
          {"multiprocessors", step.multiprocessors},
          {"step_us", step.step_us},
          {"kernels_us", step.sum_us()},
          {"kernels", kernels}};
}

}  // namespace skytape::train
