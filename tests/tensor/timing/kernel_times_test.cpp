#include "tensor/timing/kernel_times.hpp"

#include "tensor/gemm/gemm.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/launch/graph.hpp"
#include "tests/support/devices.hpp"
#include "tests/support/doctest.hpp"
#ifdef SKYTAPE_CUDA_SIMULATED
#include "tests/cuda_simulator/simulator.hpp"
#endif

using namespace skytape;

#ifdef SKYTAPE_CUDA
namespace {

/// The work that is traced here, in four pieces.
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

bool is_accumulate(const KernelTime& time) {
  return time.name.find("Accumulate") != std::string::npos;
}

}  // namespace

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
  std::int64_t start = 0;
  std::size_t copies = 0, ours = 0;
  for (const KernelTime& time : trace.kernels) {
    CHECK(time.start_ns >= start);  // one may be started while the one before it ends
    CHECK(time.end_ns > time.start_ns);
    CHECK(time.part.empty());
    start = time.start_ns;
    if (time.kind == KernelTime::Kind::copy) ++copies;
    if (is_accumulate(time)) {
      ++ours;
      CHECK(time.blocks > 0);
      CHECK(time.threads > 0);
    }
  }
  CHECK(ours == 2);
  // The copy is first. A GPU's driver may make it by a separate kernel.
  CAPTURE(trace.kernels.front().name);
  CHECK_FALSE(is_accumulate(trace.kernels.front()));
  CHECK(multiprocessors() > 0);
#ifdef SKYTAPE_CUDA_SIMULATED
  CHECK(copies == 1);
#endif
}

TEST_CASE("kernels that are traced belong to the part whose end comes next") {
  if (!test::cuda_or_skip()) return;
  end_traced_part("before");  // nobody traces
  Submitted work;
  const KernelTrace trace = trace_kernels([&] {
    tensor::accumulate(work.y, work.x);
    end_traced_part("first");
    end_traced_part("empty");
    tensor::accumulate(work.y, work.x);
    tensor::accumulate(work.y, work.x);
    end_traced_part("second");
    tensor::accumulate(work.y, work.x);
  });
  if (!trace.fault.empty()) {
    MESSAGE("no trace: ", trace.fault);
    return;
  }
  std::vector<std::string> parts;
  for (const KernelTime& time : trace.kernels) parts.push_back(time.part);
  CHECK(parts == std::vector<std::string>{"first", "second", "second", ""});
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
