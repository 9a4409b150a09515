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

void end_traced_part(const char* part) {
  if constexpr (kHaveCuda) end_traced_part_on(Cuda{}, part);
}

int multiprocessors() {
  return on_cuda([](Cuda tag) { return multiprocessors_on(tag); });
}

}  // namespace skytape
