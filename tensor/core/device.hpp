// The devices that tensors are on.
#pragma once

#include <string>

namespace skytape {

enum class Device { cpu, cuda };

/// Tags that select the overload of a kernel: `softmax_on(Cpu{}, …)` or `softmax_on(Cuda{}, …)`.
struct Cpu {};
struct Cuda {};

[[nodiscard]] inline const char* name(Device device) {
  return device == Device::cpu ? "cpu" : "cuda";
}

/// Why no GPU can be used, in words: a build without CUDA, no GPU, a driver older than the build's
/// CUDA. Empty when one answers.
[[nodiscard]] std::string cuda_fault();
[[nodiscard]] inline bool cuda_available() { return cuda_fault().empty(); }

/// Makes GPU `number`, from 0 on, the one that `Device::cuda` is. Must be called before its first
/// use.
void use_gpu(int number);

/// Waits until everything submitted to the device is done; nothing to do on a CPU.
void synchronize(Device device);

}  // namespace skytape
