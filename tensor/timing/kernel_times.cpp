#include "tensor/timing/kernel_times.hpp"

#include <algorithm>
#include <type_traits>

namespace skytape {
namespace {

/// f(Cuda{}); throws in a build without CUDA.
template <class Result, class F> Result on_cuda(const F& f) {
  return on_device(Device::cuda, [&](auto tag) -> Result {
    if constexpr (std::is_same_v<decltype(tag), Cuda>) {
      return f(tag);
    } else {
      return {};  // never: the device is cuda
    }
  });
}

}  // namespace

KernelTrace trace_kernels(const std::function<void()>& f) {
  auto trace = on_cuda<KernelTrace>([&](Cuda tag) { return trace_kernels_on(tag, f); });
  std::stable_sort(trace.kernels.begin(), trace.kernels.end(),
                   [](const auto& a, const auto& b) { return a.start_ns < b.start_ns; });
  return trace;
}

std::string kernel_name(const void* function) {
  return on_cuda<std::string>([&](Cuda tag) { return kernel_name_on(tag, function); });
}

std::vector<LaunchTime> time_launches(double busy_ms, const std::function<void()>& f) {
  return on_cuda<std::vector<LaunchTime>>(
      [&](Cuda tag) { return time_launches_on(tag, busy_ms, f); });
}

int multiprocessors() {
  return on_cuda<int>([](Cuda tag) { return multiprocessors_on(tag); });
}

}  // namespace skytape
