// CUDA half of measure_gpu_facts (product_rates.hpp).
#include <algorithm>
#include <chrono>
#include <vector>

#include "tensor/gemm/gemm.hpp"
#include "tensor/gemm/tensor_core.hpp"
#include "tensor/launch/graph.hpp"
#include "tensor/random/random.hpp"
#include "tensor/timing/clock.hpp"
#include "tensor/timing/kernel_times.hpp"
#include "train/process/product_rates.hpp"

namespace skytape::train {
namespace {

constexpr int kRuns = 7;

/// Microseconds of the device's work that f submits, the shortest of some runs.
template <class F> double shortest_us(const F& f) {
  double shortest = 1e30;
  for (int run = 0; run <= kRuns; ++run) {  // the first one warms up
    synchronize(Device::cuda);
    const auto start = std::chrono::steady_clock::now();
    f();
    synchronize(Device::cuda);
    const std::chrono::duration<double, std::micro> us = std::chrono::steady_clock::now() - start;
    if (run > 0) shortest = std::min(shortest, us.count());
  }
  return shortest;
}

/// mhz [1] = cycles of a multiprocessor in a microsecond, over so many.
__global__ void clock_kernel(std::int64_t nanoseconds, double* mhz) {
  const std::int64_t begin = cuda::global_nanoseconds(), first = cuda::cycles();
  std::int64_t now = begin;
  while (now - begin < nanoseconds) now = cuda::global_nanoseconds();
  *mhz = 1e3 * static_cast<double>(cuda::cycles() - first) / static_cast<double>(now - begin);
}

/// Right behind products that keep the device busy, the median of some times.
double clock_mhz() {
  constexpr int kProducts = 8;
#ifdef SKYTAPE_CUDA_SIMULATED
  constexpr std::int64_t kSize = 16;
#else
  constexpr std::int64_t kSize = 4096;
#endif
  const PrecisionScope precision(Device::cuda, Precision::bf16);
  const Tensor a = tensor::normal({kSize, kSize}, {1, {}}, DType::f32, Device::cuda);
  Tensor c = empty_like(a), mhz = Tensor::empty({kRuns}, DType::f64, Device::cuda);
  for (int run = 0; run < kRuns; ++run) {
    for (int i = 0; i < kProducts; ++i) tensor::gemm(a, Op::none, a, Op::none, c);
    cuda::launch({"clock", 1, 1}, clock_kernel, std::int64_t{100'000}, mhz.data<double>() + run);
  }
  std::vector<double> values = mhz.to_vector();
  std::sort(values.begin(), values.end());
  return values[kRuns / 2];
}

__global__ void empty_node(int) {}

/// As a kernel that is launched before the one ahead of it is done, and waits for it.
__global__ void dependent_node(int) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
}

void launch_dependent([[maybe_unused]] int i) {
#ifdef SKYTAPE_CUDA_SIMULATED
  cuda::launch({"dependent node", 1, 32}, dependent_node, i);
#else
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = 1;
  config.blockDim = 32;
  config.stream = cuda::stream();
  config.attrs = &attribute;
  config.numAttrs = 1;
  CUDA_CHECK(cudaLaunchKernelEx(&config, dependent_node, i));
#endif
}

/// Nanoseconds of a node in a replayed graph of such kernels, one behind the other.
template <class Launch> double node_ns(const Launch& launch) {
  constexpr int kNodes = 200, kReplays = 10;
  const Graph graph([&] {
    for (int i = 0; i < kNodes; ++i) launch(i);
  });
  return 1e3 / (kNodes * kReplays) * shortest_us([&] {
           for (int i = 0; i < kReplays; ++i) graph.replay();
         });
}

constexpr int kProductThreads = 256, kProductBlocks = 4;  // of a multiprocessor
constexpr int kIndependent = 8;                           // products of a warp that wait for none
constexpr double kFlops = 2.0 * 16 * 8 * 16;              // of one product of tiles

/// out [threads]: of sums that no one wants, so that none is left out.
__global__ void mma_kernel(std::int64_t loops, float* out) {
  const int thread = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  std::uint32_t a[4], b[2];  // pairs of bf16 of different numbers in [0.03, 0.06)
  for (int i = 0; i < 4; ++i) a[i] = 0x3d003d00u | ((thread * 2654435761u + 977u * i) & 0x7f007fu);
  for (int i = 0; i < 2; ++i) b[i] = 0x3d003d00u | ((thread * 2246822519u + 991u * i) & 0x7f007fu);
  float sums[kIndependent][4] = {};
  for (std::int64_t loop = 0; loop < loops; ++loop) {
#pragma unroll
    for (int i = 0; i < kIndependent; ++i) cuda::ptx::mma_m16n8k16_bf16(sums[i], a, b);
  }
  float total = 0;
  for (int i = 0; i < kIndependent; ++i) total += sums[i][0] + sums[i][1] + sums[i][2] + sums[i][3];
  out[thread] = total;
}

double mma_tflops() {
#ifdef SKYTAPE_CUDA_SIMULATED
  constexpr std::int64_t kLoops = 1;
  const int blocks = 1;
#else
  constexpr std::int64_t kLoops = 4096;
  const int blocks = kProductBlocks * multiprocessors();
#endif
  const Tensor out = Tensor::empty({blocks * kProductThreads}, DType::f32, Device::cuda);
  const double us = shortest_us([&] {
    cuda::launch({"mma.sync", static_cast<unsigned>(blocks), kProductThreads}, mma_kernel, kLoops,
                 out.data<float>());
  });
  constexpr int kWarps = kProductThreads / cuda::kWarp;
  return 1e-6 * kFlops * kIndependent * static_cast<double>(kLoops) * kWarps * blocks / us;
}

}  // namespace

GpuFacts gpu_facts_on(Cuda) {
  GpuFacts facts;
  facts.clock_mhz = clock_mhz();
  facts.node_ns = node_ns([](int i) { cuda::launch({"empty node", 1, 32}, empty_node, i); });
  try {
    facts.dependent_node_ns = node_ns(launch_dependent);
  } catch (const Error& error) {
    facts.why_no_dependent = error.what();
  }
  facts.mma_tflops = mma_tflops();
  return facts;
}

}  // namespace skytape::train
