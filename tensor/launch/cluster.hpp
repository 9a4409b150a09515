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

/// How many pairs of the kernel's blocks this device runs at once, each block on a multiprocessor of its
/// own: so many are faster by pairs. Where launches are only counted, those of an H100 or H200.
template <class... P>
std::int64_t most_pairs(void (*kernel)(P...), unsigned threads, std::size_t shared_bytes) {
  if (GpuCount::active()) return 66;
  int device = 0, clusters = 0;
  CUDA_CHECK(cudaGetDevice(&device));
  CUDA_CHECK(cudaDeviceGetAttribute(&clusters, cudaDevAttrClusterLaunch, device));
  cudaFuncAttributes code{};
  CUDA_CHECK(cudaFuncGetAttributes(&code, kernel));
  if (clusters == 0 || code.ptxVersion < 90) return 0;
#ifdef SKYTAPE_CUDA_SIMULATED
  (void)threads, (void)shared_bytes;
  return cuda_simulator::kMultiprocessors / 2;
#else
  const ExtendedLaunch launch(2, false, dim3(2), dim3(threads), shared_bytes);
  int at_once = 0;
  CUDA_CHECK(cudaOccupancyMaxActiveClusters(&at_once, kernel, &launch.config));
  int multiprocessors = 0;
  CUDA_CHECK(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device));
  return std::min(at_once, multiprocessors / 2);  // small blocks would share one
#endif
}

}  // namespace skytape::cuda
