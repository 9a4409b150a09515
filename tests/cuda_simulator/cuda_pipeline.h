// Stands in for CUDA's header of this name: copies from global to shared memory that pass by the
// registers (cp.async). Here they are done at once, so that a forgotten wait does not show.
#pragma once

#include <cstddef>
#include <cstring>

inline void __pipeline_memcpy_async(void* shared, const void* global, std::size_t bytes) {
  std::memcpy(shared, global, bytes);
}
inline void __pipeline_commit() {}
inline void __pipeline_wait_prior(std::size_t) {}
