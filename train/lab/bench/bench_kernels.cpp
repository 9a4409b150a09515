#include "train/lab/bench/bench_kernels.hpp"

#include <cxxabi.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <memory>
#include <regex>
#include <span>

#include "tensor/gemm/precision.hpp"
#include "train/step/trainer.hpp"

namespace skytape::train {
namespace {

constexpr int kWarmUps = 3;  // the first step runs directly, the second is captured
constexpr std::uint64_t kSeed = 42;

double median(std::vector<double> values) {
  const auto half = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), half, values.end());
  return *half;
}

/// Returns a kernel's mangled name as "map_kernel<Gelu<float>>", without the namespaces of all
/// kernels, the type that it returns and its parameters. A name that is not mangled (a library's)
/// comes back as it is.
std::string short_name(const std::string& mangled) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status), std::free);
  if (status != 0) return mangled;
  static const std::regex kScopes(
      R"(^void |\(anonymous namespace\)::|\b(skytape|cuda|tensor|attention)::)");
  static const std::regex kCasts(R"(\([a-zA-Z_:]+\)(?=-?\d))");  // of arguments that are numbers
  const std::string name =
      std::regex_replace(std::regex_replace(text.get(), kScopes, ""), kCasts, "");
  std::string shortened = name.substr(0, name.find('('));
  for (std::size_t at = 0; (at = shortened.find(" >")) != std::string::npos;)
    shortened.erase(at, 1);
  return shortened;
}

std::string name_of(const KernelTime& record) {
  switch (record.kind) {
    case KernelTime::Kind::copy:
      return "copy";
    case KernelTime::Kind::fill:
      return "fill";
    case KernelTime::Kind::kernel:
      return short_name(record.name);
  }
  return {};
}

/// Places of the records of each name, in the order of their starts.
using Places = std::map<std::string, std::vector<std::size_t>>;
Places places_by_name(std::span<const KernelTime> records) {
  Places places;
  for (std::size_t i = 0; i < records.size(); ++i) places[name_of(records[i])].push_back(i);
  return places;
}

/// The times of one replay's kernels.
struct ReplayTimes {
  std::vector<double> us, gap_us, added_us;
  explicit ReplayTimes(std::span<const KernelTime> records) {
    std::int64_t end = records.empty() ? 0 : records[0].start_ns;
    const auto add = [](std::vector<double>& to, std::int64_t ns) {
      to.push_back(1e-3 * static_cast<double>(std::max<std::int64_t>(0, ns)));
    };
    for (const KernelTime& record : records) {
      add(us, record.end_ns - record.start_ns);
      add(gap_us, record.start_ns - end);
      add(added_us, record.end_ns - std::max(record.start_ns, end));
      end = std::max(end, record.end_ns);
    }
  }
};

}  // namespace

double StepKernels::sum_us() const {
  double us = 0;
  for (const KernelRow& row : rows) us += row.added_us;
  return us;
}

double StepKernels::gaps_us() const {
  double us = 0;
  for (const KernelRow& row : rows) us += row.gap_us;
  return us;
}

std::vector<KernelRow> rows_of(const std::vector<KernelTime>& traced, std::size_t replays,
                               const std::vector<KernelTime>& direct) {
  ENSURE(replays > 0 && traced.size() % replays == 0, "kernels of a step: ", traced.size(),
         " records are not those of ", replays, " equal replays");
  const std::size_t length = traced.size() / replays;
  const auto replay = [&](std::size_t i) { return std::span(traced).subspan(i * length, length); };
  const Places first = places_by_name(replay(0));
  std::vector<std::vector<double>> us(length), gap_us(length), added_us(length);
  for (std::size_t i = 0; i < replays; ++i) {
    const Places here = places_by_name(replay(i));
    const ReplayTimes times(replay(i));
    for (const auto& [name, rows] : first) {
      const auto same = here.find(name);
      // Streams that run in parallel may change the order, but not what runs.
      ENSURE(same != here.end() && same->second.size() == rows.size(), "kernels of a step: replay ",
             i, " ran other kernels than the first: ", name);
      for (std::size_t k = 0; k < rows.size(); ++k) {
        const std::size_t at = same->second[k];
        us[rows[k]].push_back(times.us[at]);
        gap_us[rows[k]].push_back(times.gap_us[at]);
        added_us[rows[k]].push_back(times.added_us[at]);
      }
    }
  }
  const Places parts = places_by_name(direct);
  std::vector<KernelRow> rows(length);
  for (const auto& [name, places] : first) {
    const auto same = parts.find(name);
    for (std::size_t k = 0; k < places.size(); ++k) {
      const std::size_t at = places[k];
      const KernelTime& record = traced[at];
      const bool known = same != parts.end() && k < same->second.size();
      rows[at] = {name,
                  known ? direct[same->second[k]].part : kNoPart,
                  record.blocks,
                  record.threads,
                  record.registers,
                  record.shared_bytes,
                  median(us[at]),
                  median(gap_us[at]),
                  median(added_us[at])};
    }
  }
  return rows;
}

StepKernels measure_kernels(const BenchCase& c) {
  using Clock = std::chrono::steady_clock;
  const RunConfig config = configure(c);
  const PrecisionScope precision(Device::cuda, config.precision);
  nn::Model model(config.model, DType::f32, Device::cuda, kSeed);
  const data::Batch batch = bench_batch(c, config.model);
  const auto traced = [](const std::function<void()>& steps) {
    KernelTrace trace = trace_kernels(steps);
    ENSURE(trace.fault.empty(), "kernels of a step: no trace by CUPTI: ", trace.fault);
    return std::move(trace.kernels);
  };
  const auto steps = [&](Trainer& trainer, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) trainer.step(batch);
    synchronize(Device::cuda);
  };
  StepKernels step;
  step.multiprocessors = multiprocessors();

  Trainer direct(model, config.adamw, config.schedule, kSeed, {}, false);
  steps(direct, kWarmUps);
  OpSeconds seconds;  // asked for so that the parts are told apart
  direct.time_ops(&seconds);
  const std::vector<KernelTime> parts = traced([&] { direct.step(batch); });

  Trainer replayed(model, config.adamw, config.schedule, kSeed, {}, true);
  steps(replayed, kWarmUps);
  const Clock::time_point start = Clock::now();
  steps(replayed, c.steps);
  const std::chrono::duration<double, std::micro> all = Clock::now() - start;
  step.step_us = all.count() / static_cast<double>(c.steps);
  const std::vector<KernelTime> replays = traced([&] { steps(replayed, c.steps); });
  step.rows = rows_of(replays, static_cast<std::size_t>(c.steps), parts);
  return step;
}

}  // namespace skytape::train
