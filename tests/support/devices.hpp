// Loops over the devices of this machine. Without a GPU the CUDA half is skipped with a message and
// counted.
#pragma once

#include "tensor/core/tensor.hpp"

namespace skytape::test {

/// Tells the counters which test case runs (called by main.cpp).
void begin_case(const char* name);
/// Test cases of which a CUDA half was skipped so far.
[[nodiscard]] int skipped_cuda_cases();

/// True when a GPU answers. Otherwise counts the running case as skipped, and says so once a case.
[[nodiscard]] bool cuda_or_skip();

/// True when this CPU multiplies bf16. Otherwise says that the running case is skipped.
[[nodiscard]] bool cpu_bf16_or_skip();

/// f(Device::cpu), then f(Device::cuda) where a GPU is.
template <class F> void for_each_device(const F& f) {
  f(Device::cpu);
  if (cuda_or_skip()) f(Device::cuda);
}

/// f(dtype, device) for f32 and f64 on each device.
template <class F> void for_each_kind(const F& f) {
  for_each_device([&](Device device) {
    for (const DType dtype : {DType::f32, DType::f64}) f(dtype, device);
  });
}

}  // namespace skytape::test
