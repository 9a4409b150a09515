// Random numbers as a function, not a stream: Philox4x32-10 (Salmon et al., SC 2011), the generator
// of cuRAND's Philox, with key = hash(seed, purpose, layer, …) and counter = (element, step).
#pragma once

#include <cstdint>

#include "tensor/core/tensor.hpp"

namespace skytape {

/// Names a sequence of random numbers. `step` is an i32[1] tensor on the device that draws; kernels
/// read it there, so that a replayed CUDA graph draws fresh numbers. Undefined means step 0.
struct Random {
  std::uint64_t key = 0;
  Tensor step;

  /// An independent sequence for a purpose (or layer, head, …): mixes it into the key.
  [[nodiscard]] Random fork(std::uint64_t purpose) const;
};

/// The use of random numbers. Evaluation has a separate key, so evaluating draws nothing from
/// training's sequence.
enum class Purpose : std::uint64_t { initialise = 1, train, evaluate, data, attention, dropout };
[[nodiscard]] inline Random fork(const Random& random, Purpose purpose) {
  return random.fork(static_cast<std::uint64_t>(purpose));
}

namespace tensor {

/// The number for element e is number first + e of the sequence, as cuRAND's Philox gives it:
/// uniforms in (0, 1], normals by Box-Muller. Computed in f32 and widened for f64.
[[nodiscard]] Tensor uniform(const Shape& shape, const Random& random, DType dtype, Device device,
                             std::int64_t first = 0);
[[nodiscard]] Tensor normal(const Shape& shape, const Random& random, DType dtype, Device device,
                            std::int64_t first = 0);

/// Returns the address where kernels on `device` read the step; null for an undefined step (0).
/// Throws, naming `op`, unless random.step is undefined or i32[1] on that device.
[[nodiscard]] const std::int32_t* step_data(const char* op, const Random& random, Device device);

// The two builds of the kernels behind these (random.kernel.cpp).

void uniform_on(Cpu, const Random& random, std::int64_t first, Tensor& out);
void uniform_on(Cuda, const Random& random, std::int64_t first, Tensor& out);
void normal_on(Cpu, const Random& random, std::int64_t first, Tensor& out);
void normal_on(Cuda, const Random& random, std::int64_t first, Tensor& out);

}  // namespace tensor
}  // namespace skytape
