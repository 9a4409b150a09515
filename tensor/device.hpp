// Where a tensor lives, and how host code picks the matching half of a kernel.
#pragma once

#include <string>
#include <utility>

#include "tensor/error.hpp"
#include "tensor/traffic.hpp"

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

/// Calls f(Cpu{}) or f(Cuda{}). Throws in a build without CUDA when the device is cuda.
template <class F> decltype(auto) on_device(Device device, F&& f) {
  const LaunchScope scope;
  if (device == Device::cuda) {
    if constexpr (kHaveCuda) {
      return std::forward<F>(f)(Cuda{});
    } else {
      throw Error("device cuda: this program was built without CUDA (make CUDA=1)");
    }
  }
  return std::forward<F>(f)(Cpu{});
}

/// True when the build has CUDA and a GPU answers.
[[nodiscard]] bool cuda_available();

/// Waits until everything submitted to the device is done; nothing to do on a CPU.
void synchronize(Device device);

/// How matrix products are computed: true fp32, or with inputs rounded to tf32 or bf16.
enum class Precision { fp32, tf32, bf16 };

/// Sets the precision of f32 matrix products on the device. Throws where the device lacks it.
void set_precision(Device device, Precision precision);
[[nodiscard]] Precision precision(Device device);

/// Another precision of the device's products for a while: the iterative inverse is always fp32.
class PrecisionScope {
 public:
  PrecisionScope(Device device, Precision inside) : device_(device), outside_(precision(device)) {
    if (inside != outside_) set_precision(device_, inside);
  }
  ~PrecisionScope() {
    if (precision(device_) != outside_) set_precision(device_, outside_);
  }
  PrecisionScope(const PrecisionScope&) = delete;
  PrecisionScope& operator=(const PrecisionScope&) = delete;

 private:
  Device device_;
  Precision outside_;
};

}  // namespace skytape
