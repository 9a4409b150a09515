#include "tensor/random/random.hpp"

#include "tensor/core/on_device.hpp"

namespace skytape {
namespace {

/// Finaliser of splitmix64 (Steele, Lea, Flood, OOPSLA 2014): a bijection that mixes all bits.
std::uint64_t mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

}  // namespace

Random Random::fork(std::uint64_t purpose) const {
  // Two rounds, so that neither a chain of forks nor nearby seeds line up: for a fixed purpose the
  // map from key to key is a bijection, and so it is for a fixed key from purpose to key.
  return {mix(mix(key + 0x9E3779B97F4A7C15u) + 0x9E3779B97F4A7C15u * (purpose + 1)), step};
}

namespace tensor {

const std::int32_t* step_data(const char* op, const Random& random, Device device) {
  if (!random.step.defined()) return nullptr;
  ENSURE(random.step.dtype() == DType::i32 && random.step.numel() == 1 &&
             random.step.device() == device,
         op, ": the random step must be i32[1]@", name(device), ", got ", random.step);
  return random.step.data<std::int32_t>();
}

namespace {

/// Checked, uninitialised output of a draw.
Tensor draw_target(const char* op, const Shape& shape, const Random& random, DType dtype,
                   Device device, std::int64_t first) {
  ENSURE(dtype != DType::i32, op, ": expected dtype f32 or f64, got i32");
  ENSURE(first >= 0, op, ": the first number must not be negative, got ", first);
  (void)step_data(op, random, device);
  return Tensor::empty(shape, dtype, device);
}

}  // namespace

Tensor uniform(const Shape& shape, const Random& random, DType dtype, Device device,
               std::int64_t first) {
  Tensor out = draw_target("uniform", shape, random, dtype, device, first);  // shape
  on_device(device, [&](auto tag) { uniform_on(tag, random, first, out); });
  return out;
}

Tensor normal(const Shape& shape, const Random& random, DType dtype, Device device,
              std::int64_t first) {
  Tensor out = draw_target("normal", shape, random, dtype, device, first);  // shape
  on_device(device, [&](auto tag) { normal_on(tag, random, first, out); });
  return out;
}

}  // namespace tensor
}  // namespace skytape
