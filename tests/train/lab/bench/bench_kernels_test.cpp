// Kernels of traced steps: on the simulated GPU, whose times mean nothing, and a real one.
#ifdef SKYTAPE_CUDA
#include "train/lab/bench/bench_kernels.hpp"

#include <algorithm>
#include <set>
#include <string>

#include "tests/data/synthetic.hpp"
#include "tests/support/devices.hpp"
#include "tests/support/doctest.hpp"
#ifdef SKYTAPE_CUDA_SIMULATED
#include "tensor/gemm/precision.hpp"
#include "tests/cuda_simulator/simulator.hpp"
#include "train/step/trainer.hpp"
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

#ifdef SKYTAPE_CUDA_SIMULATED
/// Returns how many kernels of ours a step submits after the first.
std::int64_t kernels_of_step(const BenchCase& c) {
  using cuda_simulator::LaunchesOnly;
  const RunConfig config = configure(c);
  const PrecisionScope precision(Device::cuda, config.precision);
  const LaunchesOnly only;
  nn::Model model(config.model, DType::f32, Device::cuda, 1);
  const data::Batch batch = bench_batch(c, config.model);
  Trainer trainer(model, config.adamw, config.schedule, 1, {}, false);
  trainer.step(batch);
  const std::int64_t before = LaunchesOnly::kernels();
  trainer.step(batch);
  return LaunchesOnly::kernels() - before;
}
#endif

}  // namespace

TEST_CASE("every kernel of a replayed step is listed with the op that it belongs to") {
  if (!test::cuda_or_skip()) return;
  for (const auto& [method, precision] :
       {std::pair{"skyformer", "bf16"}, {"informer", "fp32"}, {"vmean", "tf32"}}) {
    CAPTURE(method);
    const BenchCase c = small_case(method, precision);
    const StepKernels step = measure_kernels(c);
    CHECK(step.step_us > 0);
    CHECK(step.multiprocessors > 0);
    std::set<std::string> parts;
    for (const KernelRow& row : step.rows) {
      CAPTURE(row.name);
      CHECK(row.us > 0);
      CHECK_FALSE(row.part.empty());
      parts.insert(row.part);
    }
    CHECK_FALSE(parts.contains(kNoPart));
    for (const char* part : {"attention", "optimiser", "data"}) CHECK(parts.contains(part));
#ifdef SKYTAPE_CUDA_SIMULATED
    const std::set<std::string> others = {"copy", "fill", "simulated_gemm",
                                          "simulated_splitKreduce"};
    CHECK(kernels_of_step(c) == std::count_if(step.rows.begin(), step.rows.end(), [&](auto& row) {
            return !others.contains(row.name);
          }));
#endif
  }
}

namespace {

/// A record of a kernel, or with no name of a copy.
KernelTime ran(std::string name, std::int64_t start_ns, std::int64_t end_ns,
               std::string part = "") {
  KernelTime time;
  if (name.empty()) time.kind = KernelTime::Kind::copy;
  time.name = std::move(name);
  time.part = std::move(part);
  time.start_ns = start_ns;
  time.end_ns = end_ns;
  return time;
}

}  // namespace

TEST_CASE("a kernel adds to a step what it runs alone, and waits for what began before it") {
  const std::vector<KernelRow> rows =
      rows_of({ran("a", 1000, 3000), ran("gemm", 3500, 5000), ran("", 6000, 7000),
               ran("b", 7000, 8000), ran("a", 7500, 9000), ran("c", 8000, 8500)},
              1, {});
  const std::vector<double> us = {2, 1.5, 1, 1, 1.5, 0.5}, gaps = {0, 0.5, 1, 0, 0, 0};
  const std::vector<double> added = {2, 1.5, 1, 1, 1, 0};
  REQUIRE(rows.size() == us.size());
  for (std::size_t i = 0; i < us.size(); ++i) {
    CHECK(rows[i].us == doctest::Approx(us[i]));
    CHECK(rows[i].gap_us == doctest::Approx(gaps[i]));
    CHECK(rows[i].added_us == doctest::Approx(added[i]));
  }
  StepKernels step;
  step.rows = rows;
  CHECK(step.sum_us() + step.gaps_us() == doctest::Approx(8));  // from 1000 to 9000 ns
}

TEST_CASE("parts are those of a direct step: kernels of one name run in the same order in both") {
  const std::vector<KernelTime> direct = {ran("a", 0, 1, "norm"), ran("b", 2, 3, "attention"),
                                          ran("", 4, 5, "attention"), ran("a", 6, 7, "loss")};
  const std::vector<KernelRow> rows = rows_of(
      {ran("b", 0, 1), ran("a", 0, 2), ran("", 3, 4), ran("a", 4, 5), ran("a", 6, 7)}, 1, direct);
  std::vector<std::string> parts;
  for (const KernelRow& row : rows) parts.push_back(row.part);
  CHECK(parts == std::vector<std::string>{"attention", "norm", "attention", "loss", kNoPart});
  StepKernels step;
  step.rows = rows;
  const std::vector<std::string> notes = kernel_tables({}, step)[0].notes;
  CHECK(notes.back().find("1 kernels are NOT among those of a step") == 0);
}

TEST_CASE("kernels have the names of their functions and functors, without scopes and parameters") {
  const auto name = [](const char* mangled) {
    return rows_of({ran(mangled, 0, 1)}, 1, {})[0].name;
  };
  CHECK(name("_ZN7skytape4cuda10map_kernelINS_12_GLOBAL__N_13FooIfLi4EEEEEvlT_") ==
        "map_kernel<Foo<float, 4>>");
  CHECK(name("_ZN7skytape12_GLOBAL__N_15outerIiE5innerE") == "outer<int>::inner");
  CHECK(name("sm90_xmma_gemm_f32f32_tf32f32_nn_n") == "sm90_xmma_gemm_f32f32_tf32f32_nn_n");
  CHECK(name("") == "copy");
}

TEST_CASE("times are medians over the replays, which must be alike") {
  const auto replay = [&](std::int64_t at, std::int64_t ns) { return ran("a", at, at + ns); };
  CHECK(rows_of({replay(0, 1000), replay(9000, 7000), replay(19000, 2000)}, 3, {})[0].us ==
        doctest::Approx(2));
  const auto refused = [](const std::vector<KernelTime>& traced) {
    return error_of<Error>([&] { (void)rows_of(traced, 2, {}); });
  };
  CHECK(refused({replay(0, 1), replay(1, 1), replay(2, 1)}).find("3 records") != std::string::npos);
  CHECK(refused({replay(0, 1), ran("other", 1, 2)}).find("replay 1 ran other") !=
        std::string::npos);
}

TEST_CASE("two streams may change the order of a replay's kernels") {
  const std::vector<KernelRow> rows =
      rows_of({ran("a", 0, 1000), ran("b", 0, 3000), ran("b", 0, 3000), ran("a", 0, 2000)}, 2, {});
  CHECK(rows[0].us == doctest::Approx(2));  // of two values the larger
  CHECK(rows[1].us == doctest::Approx(3));
}

#ifdef SKYTAPE_CUDA_SIMULATED
TEST_CASE("without a trace the kernels of a step are an error that says why") {
  const cuda_simulator::TraceFaults faults(cuda_simulator::TraceFault::refuses);
  CHECK(error_of<Error>([] {
          (void)measure_kernels(small_case("vmean", "bf16"));
        }).find("no trace by CUPTI: cuptiActivityEnable failed") != std::string::npos);
}
#endif
#endif
