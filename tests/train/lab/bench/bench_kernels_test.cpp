// Traced kernels are matched with submitted ones: on the simulated GPU, whose times mean nothing,
// and a real one.
#ifdef SKYTAPE_CUDA
#include "train/lab/bench/bench_kernels.hpp"

#include <algorithm>
#include <string>

#include "tests/data/synthetic.hpp"
#include "tests/support/devices.hpp"
#include "tests/support/doctest.hpp"
#include "train/lab/bench/roofline.hpp"
#ifdef SKYTAPE_CUDA_SIMULATED
#include "data/files/json.hpp"
#include "tests/cuda_simulator/simulator.hpp"
#endif

using namespace skytape;
using namespace skytape::train;
using data::synthetic::error_of;

namespace {

BenchCase small_case(const char* method, const char* precision) {
  BenchCase c;
  c.attention = method;
  c.precision = precision;
  c.device = Device::cuda;
  c.n = 32;
  c.batch = 1;
  c.features = 8;
  c.steps = 2;
  return c;
}

}  // namespace

TEST_CASE("every kernel that a step submits is found in its replays, and nothing else") {
  if (!test::cuda_or_skip()) return;
  for (const auto& [method, precision] :
       {std::pair{"skyformer", "bf16"}, {"informer", "fp32"}, {"vmean", "tf32"}}) {
    CAPTURE(method);
    const BenchCase c = small_case(method, precision);
    const StepKernels step = measure_kernels(c);
    if (!step.why_events.empty()) MESSAGE("launches were timed by events: ", step.why_events);
    CHECK(step.unexplained.kernels == 0);
    CHECK(step.by_order == 0);
    CHECK(step.step_us > 0);
    CHECK(step.multiprocessors > 0);
    const std::vector<GpuKernel> submitted = step_kernels(c);
    REQUIRE(step.rows.size() == submitted.size());
    for (std::size_t i = 0; i < submitted.size(); ++i) {
      const KernelRow& row = step.rows[i];
      const bool product = row.submitted.name == "product";
      CAPTURE(row.submitted.name);
      CHECK(row.submitted.name == submitted[i].name);
      CHECK(row.submitted.work.bytes == submitted[i].work.bytes);
      CHECK_FALSE(row.submitted.part.empty());
      CHECK(row.kernels >= 1);
      if (!product) CHECK(row.kernels == 1);
#ifdef SKYTAPE_CUDA_SIMULATED
      CHECK(row.us > 0);
      CHECK(row.library == (product ? "simulated_gemm" : ""));
#endif
    }
  }
}

#ifdef SKYTAPE_CUDA_SIMULATED
namespace {

using cuda_simulator::TraceFault;
using cuda_simulator::TraceFaults;

/// A kernel of ours, a product or a copy, as it is counted.
GpuKernel counted(const char* name, const void* function = nullptr, std::int64_t bytes = 0) {
  GpuKernel kernel;
  kernel.name = name;
  kernel.part = "part";
  kernel.function = function;
  kernel.work.bytes = bytes;
  return kernel;
}
/// A record of a kernel, or with no name of a copy.
KernelTime ran(std::string name, std::int64_t start_ns, std::int64_t end_ns) {
  KernelTime time;
  if (name.empty()) time.kind = KernelTime::Kind::copy;
  time.name = std::move(name);
  time.start_ns = start_ns;
  time.end_ns = end_ns;
  return time;
}

// Any addresses: the simulator names a kernel by its own.
const int some_kernel = 0, other_kernel = 0;
const std::vector<GpuKernel> kStep = {counted("first", &some_kernel, 4000), counted("product"),
                                      counted("copy"), counted("second", &other_kernel),
                                      counted("third", &some_kernel)};

StepKernels matched(const std::vector<KernelTime>& traced, std::size_t replays = 1) {
  StepKernels step;
  match_kernels(traced, replays, kStep, step);
  return step;
}

}  // namespace

TEST_CASE("without a trace launches are timed, and the table says so and why") {
  for (const TraceFault which : {TraceFault::refuses, TraceFault::loses}) {
    const TraceFaults faults(which);
    BenchCase c = small_case("vmean", "bf16");
    c.n = 8;
    const StepKernels step = measure_kernels(c);
    CHECK_FALSE(step.why_events.empty());
    CHECK(step.rows.size() == step_kernels(c).size());
    const Table table = kernel_tables(c, step, {})[0];
    CHECK(table.notes[0].find("NOT traced by CUPTI (" + step.why_events + ")") == 0);
    CHECK(table.rows[0][3].kind == Cell::Kind::missing);  // the gap
    CHECK(to_json(c, step)["traced_by"] == data::Json("events"));
  }
}

TEST_CASE("kernels belong to whoever submitted them: ours by name, others by where they stand") {
  const std::string ours = kernel_name(&some_kernel), other = kernel_name(&other_kernel);
  const StepKernels step =
      matched({ran(ours, 1000, 3000), ran("gemm", 3500, 5000), ran("splitKreduce", 5000, 5500),
               ran("", 6000, 7000), ran(other, 7000, 8000), ran(ours, 7500, 9000)});
  CHECK(step.unexplained.kernels == 0);
  const std::vector<double> us = {2, 2, 1, 1, 1.5}, gaps = {0, 0.5, 0.5, 0, 0};
  const std::vector<double> added = {2, 2, 1, 1, 1};  // the last one began half a microsecond early
  for (std::size_t i = 0; i < 5; ++i) {
    CHECK(step.rows[i].us == doctest::Approx(us[i]));
    CHECK(step.rows[i].gap_us == doctest::Approx(gaps[i]));
    CHECK(step.rows[i].added_us == doctest::Approx(added[i]));
    CHECK(step.rows[i].kernels == (i == 1 ? 2 : 1));
  }
  CHECK(step.rows[1].library == "gemm");
  CHECK(step.sum_us() + step.gaps_us() == doctest::Approx(8));  // from 1000 to 9000 ns

  const Table table = kernel_tables(small_case("vmean", "bf16"), step, {4, 0, 0})[0];
  CHECK(table.rows[0][11].number == doctest::Approx(2));   // 4,000 bytes in 2 us, in GB/s
  CHECK(table.rows[0][12].number == doctest::Approx(50));  // % of what a copy reaches
}

TEST_CASE("a second stream may change the order of the starts") {
  const std::string ours = kernel_name(&some_kernel), other = kernel_name(&other_kernel);
  const StepKernels step =
      matched({ran(other, 500, 5000), ran(ours, 1000, 3000), ran("gemm", 3500, 5000),
               ran("", 6000, 7000), ran(ours, 8000, 9000)});
  CHECK(step.unexplained.kernels == 0);
  CHECK(step.rows[3].us == doctest::Approx(4.5));
  CHECK(step.rows[4].us == doctest::Approx(1));
  CHECK(step.rows[0].added_us == 0);  // all beneath the one that began first
  CHECK(step.sum_us() + step.gaps_us() == doctest::Approx(8.5));

  const StepKernels between =  // the first stream's last kernel and its product
      matched({ran(ours, 500, 1000), ran(other, 1500, 5000), ran("gemm", 3000, 4000),
               ran("", 6000, 7000), ran(ours, 8000, 9000)});
  CHECK(between.unexplained.kernels == 0);
  CHECK(between.rows[1].us == doctest::Approx(1));
  CHECK(between.rows[1].added_us == 0);
}

TEST_CASE(
    "kernels of ours under names that no function has are matched by their order, and counted") {
  const StepKernels step =
      matched({ran("skytape_a", 1000, 2000), ran("gemm", 3000, 5000), ran("", 5000, 5500),
               ran("skytape_b", 6000, 9000), ran("skytape_a", 9000, 9500)});
  CHECK(step.by_order == 3);
  CHECK(step.unexplained.kernels == 0);
  CHECK(step.rows[3].us == doctest::Approx(3));
  CHECK(step.rows[4].us == doctest::Approx(0.5));
}

TEST_CASE("what is missing or beyond the submitted kernels is named") {
  const std::string ours = kernel_name(&some_kernel), other = kernel_name(&other_kernel);
  const StepKernels step =
      matched({ran(ours, 1000, 3000), ran("gemm", 3500, 5000), ran("", 6000, 7000),
               ran("", 7000, 7500), ran(ours, 8000, 9000)});
  CHECK(step.unexplained.kernels == 1);
  CHECK(step.unexplained.us == doctest::Approx(0.5));
  CHECK(step.rows[3].kernels == 0);
  const std::vector<std::string> notes = kernel_tables({}, step, {})[0].notes;
  const auto said = [&](const std::string& words) {
    return std::any_of(notes.begin(), notes.end(), [&](const std::string& note) {
      return note.find(words) != std::string::npos;
    });
  };
  CHECK(said("NOT seen to run: second"));
  CHECK(said("NOT among what the step was counted to submit: 1 kernels"));
}

TEST_CASE("times are medians over the replays, which must be alike") {
  const std::string ours = kernel_name(&some_kernel);
  const auto replay = [&](std::int64_t at, std::int64_t ns) { return ran(ours, at, at + ns); };
  CHECK(matched({replay(0, 1000), replay(9000, 7000), replay(19000, 2000)}, 3).rows[0].us ==
        doctest::Approx(2));
  const auto refused = [](const std::vector<KernelTime>& traced) {
    return error_of<Error>([&] { (void)matched(traced, 2); });
  };
  CHECK(refused({replay(0, 1), replay(1, 1), replay(2, 1)}).find("3 records") != std::string::npos);
  CHECK(refused({replay(0, 1), ran("other", 1, 2)}).find("replay 1 ran other") !=
        std::string::npos);
}
#endif
#endif
