// CUDA only (included by nvcc): checks, the device's stream and metadata, teams and launchers.
#pragma once

#include <cublas_v2.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "tensor/core/error.hpp"
#include "tensor/core/tensor.hpp"
#ifdef SKYTAPE_CUDA_SIMULATED
#include <simulator.hpp>  // of tests/cuda_simulator
#endif

namespace skytape::cuda {

/// Returns what a status of the CUDA runtime means, and what to do where the program was compiled
/// for other GPUs.
[[nodiscard]] std::string reason(cudaError_t status);

/// Throws with the call, the place and the reason when a CUDA runtime call failed. The runtime
/// forgets the error, or it would be reported of the next kernel.
inline void check(cudaError_t status, const char* call, const char* file, int line) {
  if (status != cudaSuccess) {
    (void)cudaGetLastError();
    throw Error(join(call, " failed at ", file, ":", line, ": ", reason(status)));
  }
}
inline void check(cublasStatus_t status, const char* call, const char* file, int line) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    throw Error(join(call, " failed at ", file, ":", line, ": ", cublasGetStatusString(status)));
  }
}
#define CUDA_CHECK(call) ::skytape::cuda::check((call), #call, __FILE__, __LINE__)

/// The stream that everything is submitted to, and cuBLAS bound to it; the second ones within the
/// first function of side_by_side.
cudaStream_t stream();
cublasHandle_t cublas();
/// Returns whether the kernel that is being launched is the stream's first one behind a fork or
/// join of both: it may not be started early.
[[nodiscard]] bool follows_crossing();

/// Metadata of the device by which kernels are chosen.
struct DeviceFacts {
  int compute_capability = 0;    // the major number
  std::size_t shared_bytes = 0;  // that a block may have
  int multiprocessors = 0;
  bool clusters = false;               // of blocks (cluster.hpp)
  std::int64_t most_blocks = 1 << 20;  // of a kernel that loops beyond it
};
[[nodiscard]] DeviceFacts device_facts();

/// Returns whether the device's blocks may have so many bytes of dynamic shared memory.
[[nodiscard]] inline bool has_shared(std::size_t bytes) {
  return bytes <= device_facts().shared_bytes;
}

/// All arguments of a kernel that may be started while the one before it still runs (programmatic
/// dependent launch), which hides most of what a launch takes. Only wait() hands them out, so no
/// such kernel can touch memory before the other one is over.
template <class T> class Late {
 public:
  Late(const T& arguments) : arguments_(arguments) {}  // NOLINT(google-explicit-constructor)
  /// To be called by every thread, once, first.
  __device__ const T& wait() const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    cudaGridDependencySynchronize();
    cudaTriggerProgrammaticLaunchCompletion();  // the next one may be started, too
#endif
    return arguments_;
  }

 private:
  T arguments_;
};
template <class... P> inline constexpr bool kLate = false;
template <class T> inline constexpr bool kLate<Late<T>> = true;

#ifndef SKYTAPE_CUDA_SIMULATED
/// Returns whether this device starts kernels early, and this one was compiled to wait then. The
/// first kernel's answer holds for all: a program is compiled for the same architectures
/// throughout.
bool starts_early(const void* kernel);

/// The arguments of cudaLaunchKernelEx; not to be copied, as the configuration points to the
/// attributes.
struct ExtendedLaunch {
  cudaLaunchAttribute attributes[2]{};
  cudaLaunchConfig_t config{};

  ExtendedLaunch(unsigned cluster, bool early, dim3 grid, dim3 block, std::size_t shared_bytes) {
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream();
    config.attrs = attributes;
    if (cluster > 1) {
      cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
      attribute.id = cudaLaunchAttributeClusterDimension;
      attribute.val.clusterDim.x = cluster;
      attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
    }
    if (early) {
      cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
      attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
      attribute.val.programmaticStreamSerializationAllowed = 1;
    }
  }
  ExtendedLaunch(const ExtendedLaunch&) = delete;
  ExtendedLaunch& operator=(const ExtendedLaunch&) = delete;
};
#endif

/// The parameters of a launch; the grid must not be empty.
struct LaunchParams {
  const char* name;  // for errors
  dim3 grid, block;
  std::size_t shared_bytes = 0;  // dynamic
  unsigned cluster = 1;          // blocks of a cluster, along x (cluster.hpp)
};

/// Lets launches of a kernel ask for so many bytes of dynamic shared memory; throws where a block
/// of this device cannot have them.
void allow_shared(const char* name, const void* kernel, std::size_t bytes);

/// Runs a kernel on the stream. One that takes a Late may be started early.
template <class... P, class... A>
void launch(const LaunchParams& params, void (*kernel)(P...), A&&... args) {
  const auto& [name, grid, block, shared_bytes, cluster] = params;
  const auto* const function = reinterpret_cast<const void*>(kernel);
  if (shared_bytes > 0) allow_shared(name, function, shared_bytes);
#ifdef SKYTAPE_CUDA_SIMULATED
  cuda_simulator::launch<P...>(name, kernel, grid, block, cluster, shared_bytes, stream(),
                               std::forward<A>(args)...);
#else
  const bool early = !follows_crossing() && kLate<P...> && starts_early(function);
  if (cluster == 1 && !early) {
    kernel<<<grid, block, shared_bytes, stream()>>>(std::forward<A>(args)...);
  } else {
    const ExtendedLaunch extended(cluster, early, grid, block, shared_bytes);
    // Its error is the last one, too.
    (void)cudaLaunchKernelEx(&extended.config, kernel, static_cast<P>(std::forward<A>(args))...);
  }
#endif
  const cudaError_t status = cudaGetLastError();
  if (status != cudaSuccess) {
    throw Error(join("kernel ", name, " did not start: ", reason(status)));
  }
}

/// The block's array of type Array in shared memory, e.g. shared<float[32][33]>(). One array per
/// type: a kernel that needs two puts them into a struct.
template <class Array> __device__ __forceinline__ Array& shared() {
#ifdef SKYTAPE_CUDA_SIMULATED
  return cuda_simulator::shared<Array>();
#else
  __shared__ Array memory;
  return memory;
#endif
}

/// The block's shared memory of as many bytes as the launch asked for, aligned to 16 bytes, or to
/// 1,024.
template <std::size_t kAlignment = 16> __device__ __forceinline__ unsigned char* dynamic_shared() {
  static_assert(kAlignment == 16 || kAlignment == 1024);
#ifdef SKYTAPE_CUDA_SIMULATED
  return cuda_simulator::dynamic_shared();
#else
  if constexpr (kAlignment == 16) {
    extern __shared__ __align__(16) unsigned char memory[];
    return memory;
  } else {
    extern __shared__ __align__(1024) unsigned char memory_1024[];
    return memory_1024;
  }
#endif
}

inline constexpr int kWarp = 32;
inline constexpr int kBlockThreads = 256;
inline constexpr unsigned kAllLanes = 0xffffffffu;

struct Add {
  template <class T> __device__ T operator()(T a, T b) const { return a + b; }
};
/// The sum (or another `op`) of x over kLanes neighbouring lanes, from far to near; all of them get
/// it.
template <int kLanes, class T, class Op = Add>
__device__ __forceinline__ T warp_reduce(T x, const Op& op = {}, unsigned lanes = kAllLanes) {
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
    x = op(x, __shfl_xor_sync(lanes, x, distance));
  }
  return x;
}
/// The same from near to far: over lanes kFirst, 2 kFirst, … kEnd / 2 apart, and sums of these.
template <int kFirst, int kEnd, class T, class Op = Add>
__device__ __forceinline__ T warp_reduce_up(T x, const Op& op = {}) {
  for (int distance = kFirst; distance < kEnd; distance *= 2) {
    x = op(x, __shfl_xor_sync(kAllLanes, x, distance));
  }
  return x;
}

/// One warp owns the row.
struct Warp {
  int lane;
  template <class F> __device__ void each(std::int64_t n, const F& f) const {
    for (std::int64_t i = lane; i < n; i += kWarp) f(i);
    __syncwarp();
  }
  template <class F> __device__ auto sum(std::int64_t n, const F& f) const {
    using T = decltype(f(std::int64_t{}));
    T s = 0;
    for (std::int64_t i = lane; i < n; i += kWarp) s += f(i);
    return warp_reduce<kWarp>(s);
  }
  template <class F> __device__ auto max(std::int64_t n, const F& f) const {
    using T = decltype(f(std::int64_t{}));
    T best = -std::numeric_limits<T>::infinity();
    for (std::int64_t i = lane; i < n; i += kWarp) {
      const T value = f(i);
      best = value > best ? value : best;
    }
    return warp_reduce<kWarp>(best, [](T a, T b) { return b > a ? b : a; });
  }
  __device__ bool leader() const { return lane == 0; }
};

/// One block of kBlockThreads threads owns the row; partial results meet in shared memory.
struct Block {
  double* partials;  // [kBlockThreads / kWarp]
  template <class F> __device__ void each(std::int64_t n, const F& f) const {
    for (std::int64_t i = threadIdx.x; i < n; i += kBlockThreads) f(i);
    __syncthreads();
  }
  template <class F> __device__ auto sum(std::int64_t n, const F& f) const {
    using T = decltype(f(std::int64_t{}));
    T s = 0;
    for (std::int64_t i = threadIdx.x; i < n; i += kBlockThreads) s += f(i);
    return combine(s, [](T a, T b) { return a + b; });
  }
  template <class F> __device__ auto max(std::int64_t n, const F& f) const {
    using T = decltype(f(std::int64_t{}));
    T best = -std::numeric_limits<T>::infinity();
    for (std::int64_t i = threadIdx.x; i < n; i += kBlockThreads) {
      const T value = f(i);
      best = value > best ? value : best;
    }
    return combine(best, [](T a, T b) { return a > b ? a : b; });
  }
  __device__ bool leader() const { return threadIdx.x == 0; }

 private:
  template <class T, class Op> __device__ T combine(T value, const Op& op) const {
    value = warp_reduce<kWarp>(value, op);
    T* partial = reinterpret_cast<T*>(partials);
    if (threadIdx.x % kWarp == 0) partial[threadIdx.x / kWarp] = value;
    __syncthreads();
    T total = partial[0];
    for (int w = 1; w < kBlockThreads / kWarp; ++w) total = op(total, partial[w]);
    __syncthreads();  // the next reduction reuses `partials`
    return total;
  }
};

/// f for each of [0, count).
template <class F> struct Loop {
  std::int64_t count;
  F f;
};
template <class F> __global__ void map_kernel(Late<Loop<F>> late) {
  const auto& [n, f] = late.wait();
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n;
       i += stride) {
    f(i);
  }
}
template <class F> __global__ void warp_rows_kernel(Late<Loop<F>> late) {
  const auto& [count, f] = late.wait();
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * (kBlockThreads / kWarp);
  for (std::int64_t row =
           static_cast<std::int64_t>(blockIdx.x) * (kBlockThreads / kWarp) + threadIdx.x / kWarp;
       row < count; row += stride) {
    f(row, Warp{static_cast<int>(threadIdx.x % kWarp)});
  }
}
template <class F> __global__ void block_rows_kernel(Late<Loop<F>> late) {
  const auto& [count, f] = late.wait();
  auto& partials = shared<double[kBlockThreads / kWarp]>();
  for (std::int64_t row = blockIdx.x; row < count; row += gridDim.x) f(row, Block{partials});
}

/// Returns the name of a loop over a functor, for errors: "map skytape::tensor::Gelu<float>".
template <class F> const char* kernel_label(const char* loop) {
  const std::string_view text = __PRETTY_FUNCTION__;  // "… [with F = skytape::tensor::Gelu<float>]"
  std::size_t begin = text.find('=', text.find('[')) + 1;
  if (text[begin] == ' ') ++begin;  // nvcc's front end has none
  static const std::string label = join(loop, " ", text.substr(begin, text.rfind(']') - begin));
  return label.c_str();
}

inline constexpr std::int64_t kWarpRowWidth = 1024;  // wider rows get a whole block

inline unsigned grid_for(std::int64_t work, std::int64_t per_block) {
  return static_cast<unsigned>(std::min(ceil_div(work, per_block), device_facts().most_blocks));
}

/// f(i) for i in [0, n).
template <class F> void map(std::int64_t n, const F& f) {
  if (n == 0) return;
  launch({kernel_label<F>("map"), grid_for(n, kBlockThreads), kBlockThreads}, map_kernel<F>,
         Loop<F>{n, f});
}

/// f(row, warp) for row in [0, count).
template <class F> void warp_rows(std::int64_t count, const F& f) {
  if (count == 0) return;
  launch({kernel_label<F>("warp rows"), grid_for(count, kBlockThreads / kWarp), kBlockThreads},
         warp_rows_kernel<F>, Loop<F>{count, f});
}

/// f(row, team) for row in [0, count); `width` entries a row decide between warp and block.
template <class F> void rows(std::int64_t count, std::int64_t width, const F& f) {
  if (count == 0) return;
  if (width <= kWarpRowWidth) {
    warp_rows(count, f);
  } else {
    launch({kernel_label<F>("block rows"), grid_for(count, 1), kBlockThreads}, block_rows_kernel<F>,
           Loop<F>{count, f});
  }
}

}  // namespace skytape::cuda
