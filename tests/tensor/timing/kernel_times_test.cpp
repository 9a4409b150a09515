#include "tensor/timing/kernel_times.hpp"

#include "tensor/core/gpu_count.hpp"
#include "tensor/gemm/gemm.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/launch/graph.hpp"
#include "tensor/names/kernel_names.hpp"
#include "tests/support/devices.hpp"
#include "tests/support/doctest.hpp"
#ifdef SKYTAPE_CUDA_SIMULATED
#include "tests/cuda_simulator/simulator.hpp"
#endif

using namespace skytape;

TEST_CASE("names of kernels lose scopes, casts and parameters; others stay as they are") {
  CHECK(short_name("_ZN7skytape4cuda10map_kernelINS_12_GLOBAL__N_13FooIfLi4EEEEEvlT_") ==
        "map_kernel<Foo<float, 4>>");
  CHECK(short_name("N7skytape6tensor12_GLOBAL__N_19UnaryTaskIfLNS0_13UnaryFunctionE6EEE") ==
        "UnaryTask<float, 6>");
  CHECK(short_name("_ZN7skytape12_GLOBAL__N_15outerIiE5innerE") == "inner");
  CHECK(short_name("sm90_xmma_gemm_f32f32_tf32f32_nn_n") == "sm90_xmma_gemm_f32f32_tf32f32_nn_n");
}

#ifdef SKYTAPE_CUDA
namespace {

/// The work that is traced here, in four pieces. `two` comes back from the host.
struct Submitted {
  Tensor x, y, c;  // [64, 64]
  Submitted() {
    x = Tensor::full({64, 64}, 2, DType::f32, Device::cuda);
    y = Tensor::empty({64, 64}, DType::f32, Device::cuda);
    c = Tensor::empty({64, 64}, DType::f32, Device::cuda);
  }
  void submit() {
    y.copy_from(x);
    tensor::accumulate(y, x);
    tensor::gemm(x, Op::none, y, Op::none, c);
    tensor::accumulate(c, y);
  }
};

/// Returns the kernels that the work is counted to submit.
std::vector<GpuKernel> counted() {
  const GpuCount count;
  Submitted work;
  const auto before = count.kernels().size();
  work.submit();
  return {count.kernels().begin() + static_cast<std::ptrdiff_t>(before), count.kernels().end()};
}

}  // namespace

TEST_CASE("launches are timed one by one, under the names that they are counted by") {
  if (!test::cuda_or_skip()) return;
  Submitted work;
  work.submit();
  const std::vector<LaunchTime> times = time_launches(1, [&] { work.submit(); });
  const std::vector<GpuKernel> kernels = counted();
  REQUIRE(times.size() == kernels.size());
  for (std::size_t i = 0; i < times.size(); ++i) {
    CHECK(times[i].name == kernels[i].name);
    CHECK(times[i].us >= 0);
  }
  CHECK(times[1].name.find("Accumulate") != std::string::npos);
  CHECK(times[1].blocks > 0);
  CHECK(multiprocessors() > 0);
}

TEST_CASE(
    "a trace says what ran, also in a replayed graph, in the order of the starts; or why not") {
  if (!test::cuda_or_skip()) return;
  Submitted work;
  work.submit();
  const Graph graph([&] { work.submit(); });
  const KernelTrace trace = trace_kernels([&] {
    graph.replay();
    const Tensor from_host =
        Tensor::full({64}, 1, DType::f32, Device::cpu).to(Device::cuda);  // is left out
  });
  REQUIRE(trace.kernels.empty() != trace.fault.empty());
  if (!trace.fault.empty()) {
    MESSAGE("no trace: ", trace.fault);
    return;
  }
  const std::vector<GpuKernel> kernels = counted();
  std::int64_t start = 0;
  std::size_t copies = 0, ours = 0;
  for (const KernelTime& time : trace.kernels) {
    CHECK(time.start_ns >= start);  // one may be started while the one before it ends
    CHECK(time.end_ns > time.start_ns);
    start = time.start_ns;
    if (time.kind == KernelTime::Kind::copy) ++copies;
    if (time.name == kernel_name(kernels[1].function)) {
      ++ours;
      CHECK(time.blocks > 0);
      CHECK(time.threads > 0);
    }
  }
  CHECK(ours == 2);
  // The copy is first. A GPU's driver may make it by a separate kernel.
  CAPTURE(trace.kernels.front().name);
  CHECK(trace.kernels.front().name != kernel_name(kernels[1].function));
#ifdef SKYTAPE_CUDA_SIMULATED
  CHECK(copies == 1);
#endif
}
#endif

#ifdef SKYTAPE_CUDA_SIMULATED
TEST_CASE("a trace that CUPTI refuses or cannot complete says so, and the next one works") {
  using cuda_simulator::TraceFault;
  Submitted work;
  const auto fault = [&](TraceFault which) {
    const cuda_simulator::TraceFaults faults(which);
    const KernelTrace trace = trace_kernels([&] { work.submit(); });
    CHECK(trace.kernels.empty() == !trace.fault.empty());
    return trace.fault;
  };
  CHECK(fault(TraceFault::refuses) == "cuptiActivityEnable failed: simulated fault (39)");
  CHECK(fault(TraceFault::drops) == "CUPTI dropped 7 records");
  CHECK(fault(TraceFault::none).empty());
  CHECK(trace_kernels([] {}).fault == "CUPTI recorded no kernel");
}
#endif
