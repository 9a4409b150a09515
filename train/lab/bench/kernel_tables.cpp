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

/// The work of one row, or of several together.
struct Work {
  double us = 0, gap_us = 0, bytes = 0, flops = 0;
  std::int64_t kernels = 0;
  void add(const KernelRow& row) {
    us += row.added_us;
    gap_us += row.gap_us;
    bytes += static_cast<double>(row.submitted.work.bytes);
    flops += 2 * static_cast<double>(row.submitted.work.multiply_adds);
    kernels += row.kernels;
  }
  [[nodiscard]] double gbs() const { return us > 0 ? 1e-3 * bytes / us : 0; }
  [[nodiscard]] double tflops() const { return us > 0 ? 1e-6 * flops / us : 0; }
};

/// A number, or nothing where it would say nothing.
Cell some(double value) { return value > 0 ? Cell(value) : Cell(); }
Cell percent(double value, double whole) { return some(whole > 0 ? 100 * value / whole : 0); }

std::string model_of(const BenchCase& c) {
  return c.papers_model ? "the papers' model" : "recipe " + c.recipe;
}

std::string title_of(const KernelRow& row) {
  return row.library.empty() ? row.submitted.name : row.submitted.name + " " + row.library;
}

/// Sums over the rows with the same key, the longest first.
template <class Key> Table sums(const char* name, std::string title, const StepKernels& step,
                                const GpuRates& rates, const Key& key) {
  std::map<std::string, Work> groups;
  for (const KernelRow& row : step.rows) groups[key(row)].add(row);
  if (step.unexplained.kernels > 0) groups["unexplained"].add(step.unexplained);
  std::vector<std::pair<std::string, Work>> sorted(groups.begin(), groups.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second.us > b.second.us; });
  Table table;
  table.name = name;
  table.title = std::move(title);
  table.columns = {{name},
                   {"kernels", "{:.0f}"},
                   {"us", "{:.1f}"},
                   {"% of sum", "{:.1f}"},
                   {"gaps", "{:.1f}"},
                   {"GB", "{:.4f}"},
                   {"GB/s", "{:.0f}"},
                   {"% of copy", "{:.0f}"},
                   {"GFLOP", "{:.3f}"},
                   {"TFLOP/s", "{:.2f}"}};
  for (const auto& [group, work] : sorted) {
    table.add({group, static_cast<double>(work.kernels), work.us, percent(work.us, step.sum_us()),
               step.why_events.empty() ? Cell(work.gap_us) : Cell(), some(1e-9 * work.bytes),
               some(work.gbs()), percent(work.gbs(), rates.copy_gbs), some(1e-9 * work.flops),
               some(work.tflops())});
  }
  return table;
}

/// Returns how the kernels of a case were timed, and which of them do not fit the count.
std::vector<std::string> notes_of(const BenchCase& c, const StepKernels& step) {
  const bool traced = step.why_events.empty();
  std::vector<std::string> notes;
  notes.push_back(
      traced
          ? join("Traced by CUPTI: medians of ", c.steps,
                 " replays of the step's graph. \"adds\", from which sums and rates come: without "
                 "the time in which a kernel that began before still ran.")
          : join("NOT traced by CUPTI (", step.why_events, "): each launch of ", c.steps,
                 " steps, submitted op by op, timed by events, which resolve half a "
                 "microsecond; gaps are not seen."));
  notes.push_back(fmt::format(
      "Sum of kernels {:.1f} us{}; a step that nobody traces takes {:.1f} us.", step.sum_us(),
      traced ? fmt::format(", of gaps {:.1f} us", step.gaps_us()) : "", step.step_us));
  if (step.by_order > 0) {
    notes.push_back(join(step.by_order,
                         " kernels were matched by their order ALONE: their names "
                         "are not those of functions that the step submits"));
  }
  std::string unseen;
  for (const KernelRow& row : step.rows) {
    if (row.kernels == 0) unseen += (unseen.empty() ? "" : ", ") + row.submitted.name;
  }
  if (!unseen.empty()) notes.push_back("Counted, but NOT seen to run: " + unseen);
  if (step.unexplained.kernels > 0) {
    notes.push_back(
        join("NOT among what the step was counted to submit: ", step.unexplained.kernels,
             " kernels, the first ", step.unexplained.library));
  }
  return notes;
}

}  // namespace

std::vector<Table> kernel_tables(const BenchCase& c, const StepKernels& step,
                                 const GpuRates& rates) {
  Table all;
  all.name = "kernels";
  all.title = join("Kernels of a training step: ", c.attention, ", ", c.precision, ", n = ", c.n,
                   ", batch ", c.batch, ", ", model_of(c));
  all.columns = {{"kernel"},
                 {"part"},
                 {"us", "{:.2f}"},
                 {"gap", "{:.2f}"},
                 {"adds", "{:.2f}"},
                 {"blocks", "{:.0f}"},
                 {join("blocks/", step.multiprocessors), "{:.2f}"},
                 {"threads", "{:.0f}"},
                 {"regs", "{:.0f}"},
                 {"shared", "{:.0f}"},
                 {"MB", "{:.2f}"},
                 {"GB/s", "{:.0f}"},
                 {"% of copy", "{:.0f}"},
                 {"TFLOP/s", "{:.2f}"},
                 {"% of rate", "{:.0f}"}};
  const bool traced = step.why_events.empty();
  const auto add = [&](const KernelRow& row) {
    Work work;
    work.add(row);
    const double rate = row.submitted.work.product ? rates.product_tflops : rates.fp32_tflops;
    all.add({title_of(row), row.submitted.part, row.us, traced ? Cell(row.gap_us) : Cell(),
             row.added_us, some(static_cast<double>(row.blocks)),
             some(static_cast<double>(row.blocks) / std::max(1, step.multiprocessors)),
             some(static_cast<double>(row.threads)), some(static_cast<double>(row.registers)),
             some(static_cast<double>(row.shared_bytes)), some(1e-6 * work.bytes), some(work.gbs()),
             percent(work.gbs(), rates.copy_gbs), some(work.tflops()),
             percent(work.tflops(), rate)});
  };
  for (const KernelRow& row : step.rows) add(row);
  if (step.unexplained.kernels > 0) add(step.unexplained);
  all.notes = notes_of(c, step);
  return {all,
          sums("part", "By the op that they belong to, forward and backward", step, rates,
               [](const KernelRow& row) { return row.submitted.part; }),
          sums("kernel", "By kernel", step, rates, title_of)};
}

Table summary_table(const std::vector<std::pair<BenchCase, StepKernels>>& steps) {
  Table table;
  table.name = "steps";
  table.title = "Steps, their kernels and their parts, in us";
  table.columns = {{"attention"},         {"precision"},           {"n", "{:.0f}"},
                   {"kernels", "{:.0f}"}, {"step", "{:.0f}"},      {"sum", "{:.0f}"},
                   {"gaps", "{:.0f}"},    {"attention", "{:.0f}"}, {"products", "{:.0f}"},
                   {"rest", "{:.0f}"},    {"optimiser", "{:.0f}"}, {"data", "{:.0f}"},
                   {"timed by"}};
  for (const auto& [c, step] : steps) {
    OpSeconds seconds;
    std::int64_t kernels = step.unexplained.kernels;
    for (const KernelRow& row : step.rows) {
      seconds[row.submitted.part] += 1e-6 * row.added_us;
      kernels += row.kernels;
    }
    const StepParts ms = step_parts(seconds, 1);
    const bool traced = step.why_events.empty();
    table.add({c.attention, c.precision, static_cast<double>(c.n), static_cast<double>(kernels),
               step.step_us, step.sum_us(), traced ? Cell(step.gaps_us()) : Cell(),
               1e3 * ms.attention, 1e3 * ms.products, 1e3 * ms.rest, 1e3 * ms.optimiser,
               1e3 * ms.data, traced ? "CUPTI" : "events"});
  }
  return table;
}

Json to_json(const BenchCase& c, const StepKernels& step) {
  Json kernels = Json::array();
  const auto add = [&](const KernelRow& row, const std::string& name) {
    kernels.push_back({{"name", name},
                       {"library", row.library},
                       {"part", row.submitted.part},
                       {"kernels", row.kernels},
                       {"us", row.us},
                       {"gap_us", row.gap_us},
                       {"added_us", row.added_us},
                       {"blocks", row.blocks},
                       {"threads", row.threads},
                       {"registers", row.registers},
                       {"shared_bytes", row.shared_bytes},
                       {"bytes", row.submitted.work.bytes},
                       {"flops", 2 * row.submitted.work.multiply_adds},
                       {"product", row.submitted.work.product}});
  };
  for (const KernelRow& row : step.rows) add(row, row.submitted.name);
  if (step.unexplained.kernels > 0) add(step.unexplained, "unexplained");
  return {{"attention", c.attention},
          {"model", model_of(c)},
          {"precision", c.precision},
          {"n", c.n},
          {"batch", c.batch},
          {"features", c.features},
          {"traced_by", step.why_events.empty() ? "CUPTI" : "events"},
          {"why_events", step.why_events},
          {"multiprocessors", step.multiprocessors},
          {"step_us", step.step_us},
          {"kernels_us", step.sum_us()},
          {"kernels", kernels}};
}

}  // namespace skytape::train
