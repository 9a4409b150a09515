// The bf16 format: the upper half of an f32.
#pragma once

#include <bit>
#include <cstdint>

#include "tensor/launch/launch.hpp"

namespace skytape::tensor {

/// The nearest bf16, ties to even. NaN stays NaN.
HD inline std::uint16_t bf16_bits(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
  return static_cast<std::uint16_t>(x == x ? rounded : bits >> 16 | 0x40u);
}
HD inline float from_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(std::uint32_t{bits} << 16);
}

}  // namespace skytape::tensor
