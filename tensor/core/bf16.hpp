// The bf16 format: the upper half of an f32.
#pragma once

#include <bit>
#include <cstdint>

namespace skytape {

/// A number in bf16, to move and to convert; nothing computes with it.
struct Bf16 {
  std::uint16_t bits;

  Bf16() = default;
  /// The nearest bf16, ties to even. NaN stays NaN.
  constexpr explicit Bf16(float x) : bits(rounded(std::bit_cast<std::uint32_t>(x), x != x)) {}
  constexpr explicit operator float() const {
    return std::bit_cast<float>(std::uint32_t{bits} << 16);
  }

 private:
  static constexpr std::uint16_t rounded(std::uint32_t x, bool is_nan) {
    return static_cast<std::uint16_t>(is_nan ? x >> 16 | 0x40u
                                             : (x + 0x7fffu + (x >> 16 & 1u)) >> 16);
  }
};

}  // namespace skytape
