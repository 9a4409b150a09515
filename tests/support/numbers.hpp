// Tensors of given numbers, on the CPU.
#pragma once

#include <cstdint>
#include <vector>

#include "tensor/core/tensor.hpp"

namespace skytape::test {

[[nodiscard]] inline Tensor f64(const std::vector<double>& values, const Shape& shape) {
  return Tensor::from(values, shape, DType::f64, Device::cpu);
}
[[nodiscard]] inline Tensor f64(const std::vector<double>& values) {
  return f64(values, {static_cast<std::int64_t>(values.size())});
}
[[nodiscard]] inline Tensor integers(const std::vector<std::int32_t>& values, const Shape& shape) {
  return Tensor::from(values, shape, DType::i32, Device::cpu);
}

}  // namespace skytape::test
