#include "train/bench/bench_kernels.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <span>
#include <utility>

#include "tensor/gemm/precision.hpp"
#include "tensor/names/kernel_names.hpp"
#include "train/bench/roofline.hpp"
#include "train/step/trainer.hpp"

namespace skytape::train {
namespace {

using data::Json;

constexpr int kWarmUps = 3;  // the first step runs directly, the second is captured
constexpr double kMostBusyMs = 50;
constexpr std::uint64_t kSeed = 42;
constexpr std::size_t kNobody = -1;

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto half = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), half, values.end());
  return *half;
}

/// Which of the submitted ones ran as each of one replay's records; kNobody: none did.
class Matching {
 public:
  explicit Matching(const std::vector<GpuKernel>& submitted) : submitted_(submitted) {
    for (const GpuKernel& kernel : submitted) {
      names_.push_back(kernel.function == nullptr ? "" : kernel_name(kernel.function));
      ours_.insert(names_.back());
    }
    ours_.erase("");
  }

  [[nodiscard]] std::vector<std::size_t> of(std::span<const KernelTime> records) const {
    std::vector<bool> taken(submitted_.size());
    std::vector<std::size_t> matched;
    std::size_t last = kNobody;  // what the record before was
    for (const KernelTime& record : records) {
      const bool ours = ours_.contains(record.name) || is_foreign_name_of_ours(record);
      const std::size_t found = ours ? own(record, taken) : between(record, last, taken);
      if (found != kNobody) taken[found] = true, last = found;
      matched.push_back(found);
    }
    return matched;
  }

  /// A kernel of this library that no function's name explains: the driver and CUPTI may spell it
  /// in two ways.
  [[nodiscard]] bool is_foreign_name_of_ours(const KernelTime& record) const {
    return !ours_.contains(record.name) && record.name.find("skytape") != std::string::npos;
  }

 private:
  /// The next one of that name; of one that is not known, the next one of ours.
  [[nodiscard]] std::size_t own(const KernelTime& record, const std::vector<bool>& taken) const {
    const bool known = ours_.contains(record.name);
    for (std::size_t i = 0; i < names_.size(); ++i) {
      const bool fits = known ? names_[i] == record.name : submitted_[i].function != nullptr;
      if (!taken[i] && fits) return i;
    }
    return kNobody;
  }
  /// A product or copy that directly follows; else one more kernel of the product before.
  [[nodiscard]] std::size_t between(const KernelTime& record, std::size_t last,
                                    const std::vector<bool>& taken) const {
    const bool is_kernel = record.kind == KernelTime::Kind::kernel;
    const auto fits = [&](std::size_t i) {
      return i < submitted_.size() && submitted_[i].function == nullptr &&
             (submitted_[i].name == "product") == is_kernel;
    };
    const bool adds_up = record.name.find("splitK") != std::string::npos;
    const std::size_t next = last + 1;  // 0 behind kNobody
    if (!adds_up && fits(next) && !taken[next]) return next;
    return last != kNobody && is_kernel && fits(last) ? last : kNobody;
  }

  const std::vector<GpuKernel>& submitted_;
  std::vector<std::string> names_;  // mangled; of ours
  std::set<std::string> ours_;
};

/// The names of one replay, in any order: streams beside each other may change it.
std::vector<std::string> sorted_names(std::span<const KernelTime> records) {
  std::vector<std::string> names;
  for (const KernelTime& record : records) names.push_back(record.name);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

double StepKernels::sum_us() const {
  double us = unexplained.added_us;
  for (const KernelRow& row : rows) us += row.added_us;
  return us;
}

double StepKernels::gaps_us() const {
  double us = unexplained.gap_us;
  for (const KernelRow& row : rows) us += row.gap_us;
  return us;
}

void match_kernels(const std::vector<KernelTime>& traced, std::size_t replays,
                   const std::vector<GpuKernel>& submitted, StepKernels& step) {
  ENSURE(replays > 0 && traced.size() % replays == 0, "kernels of a step: ", traced.size(),
         " records are not those of ", replays, " equal replays");
  const std::size_t length = traced.size() / replays;
  const Matching matching(submitted);
  step.rows.assign(submitted.size(), {});
  for (std::size_t i = 0; i < submitted.size(); ++i) step.rows[i].submitted = submitted[i];
  step.unexplained = {};
  step.by_order = 0;
  // By row, the last one for what is unexplained.
  std::vector<std::vector<double>> us(submitted.size() + 1), gap_us(us), added_us(us);
  for (std::size_t replay = 0; replay < replays; ++replay) {
    const std::span records(traced.data() + replay * length, length);
    ENSURE(sorted_names(records) == sorted_names({traced.data(), length}),
           "kernels of a step: replay ", replay, " ran other kernels than the first");
    const std::vector<std::size_t> matched = matching.of(records);
    std::vector<double> sum(submitted.size() + 1), gap(sum), added(sum);
    std::int64_t end = length > 0 ? records[0].start_ns : 0;
    for (std::size_t i = 0; i < length; ++i) {
      const KernelTime& record = records[i];
      const std::size_t at = std::min(matched[i], submitted.size());
      sum[at] += 1e-3 * static_cast<double>(record.end_ns - record.start_ns);
      gap[at] += 1e-3 * static_cast<double>(std::max<std::int64_t>(0, record.start_ns - end));
      const std::int64_t since = std::max(record.start_ns, end);
      added[at] += 1e-3 * static_cast<double>(std::max<std::int64_t>(0, record.end_ns - since));
      end = std::max(end, record.end_ns);
      if (replay > 0) continue;
      KernelRow& row = at == submitted.size() ? step.unexplained : step.rows[at];
      if (matching.is_foreign_name_of_ours(record)) ++step.by_order;
      if (row.submitted.function == nullptr && row.library.empty()) {
        row.library = short_name(record.name);
      }
      if (row.kernels++ > 0) continue;  // the grid is that of the first
      row.blocks = record.blocks;
      row.threads = record.threads;
      row.registers = record.registers;
      row.shared_bytes = record.shared_bytes;
    }
    for (std::size_t at = 0; at <= submitted.size(); ++at) {
      us[at].push_back(sum[at]);
      gap_us[at].push_back(gap[at]);
      added_us[at].push_back(added[at]);
    }
  }
  for (std::size_t at = 0; at <= submitted.size(); ++at) {
    KernelRow& row = at == submitted.size() ? step.unexplained : step.rows[at];
    row.us = median(us[at]);
    row.gap_us = median(gap_us[at]);
    row.added_us = median(added_us[at]);
  }
}

void match_launches(const std::vector<std::vector<LaunchTime>>& steps,
                    const std::vector<GpuKernel>& submitted, StepKernels& step) {
  step.rows.clear();
  step.unexplained = {};
  for (const std::vector<LaunchTime>& launches : steps) {
    ENSURE(launches.size() == submitted.size(), "kernels of a step: ", launches.size(),
           " launches were timed, but ", submitted.size(), " counted");
  }
  for (std::size_t i = 0; i < submitted.size(); ++i) {
    std::vector<double> us;
    for (const std::vector<LaunchTime>& launches : steps) {
      ENSURE(launches[i].name == submitted[i].name, "kernels of a step: launch ", i, " was '",
             launches[i].name, "', but '", submitted[i].name, "' was counted");
      us.push_back(launches[i].us);
    }
    KernelRow row;
    row.submitted = submitted[i];
    row.kernels = 1;
    row.blocks = steps.empty() ? 0 : steps[0][i].blocks;
    row.us = row.added_us = median(us);
    step.rows.push_back(row);
  }
}

StepKernels measure_kernels(const BenchCase& c) {
  using Clock = std::chrono::steady_clock;
  const auto us_since = [](Clock::time_point start) {
    return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
  };
  const std::vector<GpuKernel> submitted = step_kernels(c);
  const RunConfig config = configure(c);
  const PrecisionScope precision(Device::cuda, config.precision);
  nn::Model model(config.model, DType::f32, Device::cuda, kSeed);
  const data::Batch batch = bench_batch(c, config.model);
  const auto trainer = [&](bool graphs) {
    return Trainer(model, config.adamw, config.schedule, kSeed, {}, graphs);
  };
  StepKernels step;
  step.multiprocessors = multiprocessors();
  {
    Trainer replayed = trainer(true);
    const auto steps = [&](std::int64_t count) {
      for (std::int64_t i = 0; i < count; ++i) replayed.step(batch);
      synchronize(Device::cuda);
    };
    steps(kWarmUps);
    const Clock::time_point start = Clock::now();
    steps(c.steps);
    step.step_us = us_since(start) / static_cast<double>(c.steps);
    const KernelTrace trace = trace_kernels([&] { steps(c.steps); });
    step.why_events = trace.fault;
    if (step.why_events.empty()) {
      try {
        match_kernels(trace.kernels, static_cast<std::size_t>(c.steps), submitted, step);
        return step;
      } catch (const Error& error) {
        step.why_events = error.what();
      }
    }
  }
  Trainer direct = trainer(false);
  std::vector<std::vector<LaunchTime>> steps;
  double busy_ms = 0;
  for (std::int64_t i = 0; i < kWarmUps + c.steps; ++i) {
    const Clock::time_point start = Clock::now();
    if (i < kWarmUps) {
      direct.step(batch);
      // What the host needs, and for events as long again.
      busy_ms = std::min(kMostBusyMs, 1 + 4e-3 * us_since(start));
      synchronize(Device::cuda);
    } else {
      steps.push_back(time_launches(busy_ms, [&] { direct.step(batch); }));
    }
  }
  match_launches(steps, submitted, step);
  return step;
}

namespace {

/// Of one row, or of several together.
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
  std::string unseen;
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
    if (row.kernels == 0) unseen += (unseen.empty() ? "" : ", ") + row.submitted.name;
  };
  for (const KernelRow& row : step.rows) add(row);
  if (step.unexplained.kernels > 0) add(step.unexplained);
  all.notes.push_back(
      traced
          ? join("Traced by CUPTI: medians of ", c.steps,
                 " replays of the step's graph. \"adds\", from which sums and rates come: without "
                 "the time in which a kernel that began before still ran.")
          : join("NOT traced by CUPTI (", step.why_events, "): each launch of ", c.steps,
                 " steps, submitted op by op, timed by events, which resolve half a "
                 "microsecond; gaps are not seen."));
  all.notes.push_back(fmt::format(
      "Sum of kernels {:.1f} us{}; a step that nobody traces takes {:.1f} us.", step.sum_us(),
      traced ? fmt::format(", of gaps {:.1f} us", step.gaps_us()) : "", step.step_us));
  if (step.by_order > 0) {
    all.notes.push_back(join(step.by_order,
                             " kernels were matched by their order ALONE: their names "
                             "are not those of functions that the step submits"));
  }
  if (!unseen.empty()) all.notes.push_back("Counted, but NOT seen to run: " + unseen);
  if (step.unexplained.kernels > 0) {
    all.notes.push_back(
        join("NOT among what the step was counted to submit: ", step.unexplained.kernels,
             " kernels, the first ", step.unexplained.library));
  }
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
