// Stands in for CUDA's header of this name: copies from global to shared memory that pass by the
// registers (cp.async). Here each is done when its thread waits for it, and until then its target
// holds NaN.
#pragma once

#include <cstddef>

#include "tests/cuda_simulator/simulator.hpp"

inline void __pipeline_memcpy_async(void* shared, const void* global, std::size_t bytes) {
  skytape::cuda_simulator::begin_copy(shared, global, bytes);
}
inline void __pipeline_commit() { skytape::cuda_simulator::commit_copies(); }
inline void __pipeline_wait_prior(std::size_t groups) {
  skytape::cuda_simulator::wait_for_copies(groups);
}
