// The GPU's own clocks. CUDA only.
#pragma once

#include <cstdint>

#include "tensor/launch/cuda.hpp"

namespace skytape::cuda {

/// Nanoseconds since some moment, the same for all multiprocessors.
__device__ __forceinline__ std::int64_t global_nanoseconds() {
#ifdef SKYTAPE_CUDA_SIMULATED
  return cuda_simulator::global_nanoseconds();
#else
  std::int64_t now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
#endif
}

/// Cycles of the multiprocessor that runs the thread.
__device__ __forceinline__ std::int64_t cycles() {
#ifdef SKYTAPE_CUDA_SIMULATED
  return cuda_simulator::global_nanoseconds();  // 1,000 in a microsecond
#else
  return clock64();
#endif
}

}  // namespace skytape::cuda
