// Host code picks the matching half of a kernel here. Of all headers only this one depends on
// whether the build has CUDA: a file that does not include it is compiled once for both builds (by
// ccache).
#pragma once

#include <type_traits>
#include <utility>

#include "tensor/core/device.hpp"
#include "tensor/core/error.hpp"

namespace skytape {

#ifdef SKYTAPE_CUDA
inline constexpr bool kHaveCuda = true;
#else
inline constexpr bool kHaveCuda = false;
#endif

/// Calls f(Cpu{}) or f(Cuda{}), which launch a kernel. Throws in a build without CUDA when the
/// device is cuda.
template <class F> decltype(auto) on_device(Device device, F&& f) {
  if (device == Device::cuda) {
    if constexpr (kHaveCuda) {
      return std::forward<F>(f)(Cuda{});
    } else {
      throw Error("device cuda: this program was built without CUDA (make CUDA=1)");
    }
  }
  return std::forward<F>(f)(Cpu{});
}
/// f(Cuda{}), for what a CPU has no part in. Throws in a build without CUDA.
template <class F> std::invoke_result_t<F, Cuda> on_cuda(const F& f) {
  using Result = std::invoke_result_t<F, Cuda>;
  return on_device(Device::cuda, [&](auto tag) {
    if constexpr (std::is_same_v<decltype(tag), Cuda>) return f(tag);
    return Result();  // never: the device is cuda
  });
}

}  // namespace skytape
