#include "tensor/gemm/gemm_rate.hpp"

#include <algorithm>
#include <chrono>

#include "tensor/core/storage.hpp"
#include "tensor/gemm/gemm.hpp"
#include "tensor/random/random.hpp"

namespace skytape::tensor {
namespace {

/// Shortest of several runs of f on the device, in seconds; each run repeats f `repeats` times.
template <class F> double best_seconds(Device device, int repeats, const F& f) {
  constexpr int kRuns = 7;
  f();  // touches the memory, starts the threads
  synchronize(device);
  double best = 1e30;
  for (int run = 0; run < kRuns; ++run) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < repeats; ++i) f();
    synchronize(device);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    best = std::min(best, seconds.count() / repeats);
  }
  return best;
}

}  // namespace

double measure_gemm_gflops(Device device) {
  // A GPU needs a larger product, and several in flight, to show its rate.
  const std::int64_t n = device == Device::cpu ? 1024 : 4096;
  // Random: equal numbers cost a GPU less power, and so less time.
  const Tensor a = normal({n, n}, {1, {}}, DType::f32, device);  // [n, n]
  const Tensor b = normal({n, n}, {2, {}}, DType::f32, device);  // [n, n]
  Tensor c = Tensor::empty({n, n}, DType::f32, device);          // [n, n]
  const double seconds = best_seconds(device, 4, [&] { gemm(a, Op::none, b, Op::none, c); });
  return 2e-9 * static_cast<double>(n * n * n) / seconds;
}

double measure_copy_gbs(Device device) {
  double seconds = 0;
  std::size_t bytes = 0;
  {
    const std::int64_t n = std::int64_t{1} << 26;                    // 256 MiB
    const Tensor source = Tensor::full({n}, 1, DType::f32, device);  // [n]
    Tensor target = Tensor::empty({n}, DType::f32, device);          // [n]
    bytes = source.bytes();
    seconds = best_seconds(device, 1, [&] {
      if (device == Device::cuda) return target.copy_from(source);
      const float* const from = source.data<float>();
      float* const to = target.data<float>();
#pragma omp parallel for simd schedule(static)
      for (std::int64_t i = 0; i < n; ++i) to[i] = from[i];
    });
  }
  release_cached_memory(device);  // a process that only measures should not keep 512 MiB
  return 2e-9 * static_cast<double>(bytes) / seconds;
}

}  // namespace skytape::tensor
