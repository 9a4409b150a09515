// Clusters: neighbouring blocks that run at once and write into each other's shared memory, from
// sm_90 on. CUDA only.
#pragma once

#include "tensor/launch/cuda.hpp"

namespace skytape::cuda {

// Device code for older GPUs has none of these instructions; most_pairs() keeps it from being launched.

/// Waits for all threads of the cluster. What they wrote before, to shared or device memory, all of
/// them see after it.
__device__ __forceinline__ void cluster_barrier() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  __cluster_barrier_arrive();
  __cluster_barrier_wait();
#endif
}

/// Where the cluster's block `rank` has what lies at `own` in this block's dynamic shared memory. That
/// block must have begun, and not ended: a barrier before the first use, and one after the last.
template <class T> __device__ __forceinline__ T* in_block(T* own, unsigned rank) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  return static_cast<T*>(__cluster_map_shared_rank(own, rank));
#else
  return own;
#endif
}

/// How many pairs of the kernel's blocks the device runs at once, each block on a multiprocessor of its
/// own: so many are faster by pairs.
[[nodiscard]] std::int64_t most_pairs(const void* kernel, unsigned threads,
                                      std::size_t shared_bytes);

}  // namespace skytape::cuda
