#include "train/lab/bench/bench_kernels.hpp"

#include <algorithm>
#include <chrono>
#include <set>
#include <span>

#include "tensor/gemm/precision.hpp"
#include "tensor/names/kernel_names.hpp"
#include "train/lab/bench/roofline.hpp"
#include "train/step/trainer.hpp"

namespace skytape::train {
namespace {

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

/// Matches each of one replay's records with the submitted kernel that ran; kNobody: none did.
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
  /// A product or copy that directly follows; else one more kernel of the product before; else the
  /// first one that follows what ran, as the record before may be a second stream's.
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
    if (last != kNobody && is_kernel && fits(last)) return last;
    for (std::size_t i = 1; !adds_up && i < submitted_.size(); ++i) {
      if (fits(i) && !taken[i] && taken[i - 1]) return i;
    }
    return kNobody;
  }

  const std::vector<GpuKernel>& submitted_;
  std::vector<std::string> names_;  // mangled; of ours
  std::set<std::string> ours_;
};

/// The names of one replay, in any order: parallel streams may change it.
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
      // The time that the host needs, and as long again for events.
      busy_ms = std::min(kMostBusyMs, 1 + 4e-3 * us_since(start));
      synchronize(Device::cuda);
    } else {
      steps.push_back(time_launches(busy_ms, [&] { direct.step(batch); }));
    }
  }
  match_launches(steps, submitted, step);
  return step;
}

}  // namespace skytape::train
