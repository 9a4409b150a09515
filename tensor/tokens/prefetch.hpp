// Reading ahead, CUDA only.
#pragma once

#include <cstdint>

#include "tensor/launch/cuda.hpp"

namespace skytape::cuda {

/// Has the L2 cache fetch `count` numbers, from sm_90 on, while their block does something else.
/// One thread says it; `from` and `count` are multiples of 16 bytes.
__device__ __forceinline__ void prefetch(const float* from, std::int64_t count) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(__cvta_generic_to_global(from)),
               "r"(static_cast<std::uint32_t>(count * sizeof(float)))
               : "memory");
#else
  (void)from, (void)count;
#endif
}

}  // namespace skytape::cuda
