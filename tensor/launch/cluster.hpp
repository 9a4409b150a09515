// Clusters: neighbouring blocks that run at the same time and write into each other's shared
// memory, from sm_90 on. CUDA only.
#pragma once

#include "tensor/launch/cuda.hpp"

namespace skytape::cuda {

// Device code for older GPUs has none of these instructions; most_pairs() keeps it from being
// launched.

/// Waits for all threads of the cluster. What they wrote before, to shared or device memory, all of
/// them see after it.
__device__ __forceinline__ void cluster_barrier() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  __cluster_barrier_arrive();
  __cluster_barrier_wait();
#endif
}

/// Returns the address, in the cluster's block `rank`, that corresponds to `own` in this block's
/// dynamic shared memory. That block must have begun, and not ended: a barrier before the first
/// use, and one after the last.
template <class T> __device__ __forceinline__ T* in_block(T* own, unsigned rank) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  return static_cast<T*>(__cluster_map_shared_rank(own, rank));
#else
  return own;
#endif
}

/// Returns how many pairs of the kernel's blocks the device runs at the same time, each block on a
/// separate multiprocessor: up to this number, pairs are faster.
[[nodiscard]] std::int64_t most_pairs(const void* kernel, unsigned threads,
                                      std::size_t shared_bytes);

}  // namespace skytape::cuda
