#include "tensor/timing/kernel_times.hpp"

#include <algorithm>

#include "tensor/core/on_device.hpp"

namespace skytape {

KernelTrace trace_kernels(const std::function<void()>& f) {
  auto trace = on_cuda([&](Cuda tag) { return trace_kernels_on(tag, f); });
  std::stable_sort(trace.kernels.begin(), trace.kernels.end(),
                   [](const auto& a, const auto& b) { return a.start_ns < b.start_ns; });
  return trace;
}

std::string kernel_name(const void* function) {
  return on_cuda([&](Cuda tag) { return kernel_name_on(tag, function); });
}

std::vector<LaunchTime> time_launches(double busy_ms, const std::function<void()>& f) {
  return on_cuda([&](Cuda tag) { return time_launches_on(tag, busy_ms, f); });
}

int multiprocessors() {
  return on_cuda([](Cuda tag) { return multiprocessors_on(tag); });
}

}  // namespace skytape
