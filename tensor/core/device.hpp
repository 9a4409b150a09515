// Where a tensor lives, and how host code picks the matching half of a kernel.
#pragma once

#include <string>
#include <type_traits>
#include <utility>

#include "tensor/core/error.hpp"
#include "tensor/core/traffic.hpp"

namespace skytape {

enum class Device { cpu, cuda };

/// Tags that select the overload of a kernel: `softmax_on(Cpu{}, …)` or `softmax_on(Cuda{}, …)`.
struct Cpu {};
struct Cuda {};

#ifdef SKYTAPE_CUDA
inline constexpr bool kHaveCuda = true;
#else
inline constexpr bool kHaveCuda = false;
#endif

[[nodiscard]] inline const char* name(Device device) {
  return device == Device::cpu ? "cpu" : "cuda";
}

/// Calls f(Cpu{}) or f(Cuda{}), which launch a kernel of such work (traffic.hpp). Throws in a build
/// without CUDA when the device is cuda.
template <class F> decltype(auto) on_device(Device device, const Work& work, F&& f) {
  const LaunchScope scope(work);
  if (device == Device::cuda) {
    if constexpr (kHaveCuda) {
      return std::forward<F>(f)(Cuda{});
    } else {
      throw Error("device cuda: this program was built without CUDA (make CUDA=1)");
    }
  }
  return std::forward<F>(f)(Cpu{});
}
template <class F> decltype(auto) on_device(Device device, F&& f) {
  return on_device(device, Work{}, std::forward<F>(f));
}
/// f(Cuda{}), for what a CPU has no part in. Throws in a build without CUDA.
template <class F> std::invoke_result_t<F, Cuda> on_cuda(const F& f) {
  using Result = std::invoke_result_t<F, Cuda>;
  return on_device(Device::cuda, [&](auto tag) {
    if constexpr (std::is_same_v<decltype(tag), Cuda>) return f(tag);
    return Result();  // never: the device is cuda
  });
}

/// Why no GPU can be used, in words: a build without CUDA, no GPU, a driver older than the build's
/// CUDA. Empty when one answers.
[[nodiscard]] std::string cuda_fault();
[[nodiscard]] inline bool cuda_available() { return cuda_fault().empty(); }

/// Which of the machine's GPUs `Device::cuda` is, from 0 on. To be called before its first use.
void use_gpu(int number);

/// Waits until everything submitted to the device is done; nothing to do on a CPU.
void synchronize(Device device);

}  // namespace skytape
