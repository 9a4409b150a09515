// The bf16 format: the upper half of an f32.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

namespace skytape {

/// A number in bf16, to move and to convert; nothing computes with it.
struct Bf16 {
  std::uint16_t bits;

  Bf16() = default;
  /// The nearest bf16, ties to even. NaN stays NaN.
  constexpr explicit Bf16(float x) : bits(rounded(x)) {}
  constexpr explicit operator float() const {
    return std::bit_cast<float>(std::uint32_t{bits} << 16);
  }

 private:
  static constexpr std::uint16_t rounded(float x) {
#ifdef __CUDA_ARCH__  // one instruction for the six below
    if (!std::is_constant_evaluated()) {
      std::uint16_t nearest = 0;
      asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(nearest) : "f"(x));
      return nearest;
    }
#endif
    const auto word = std::bit_cast<std::uint32_t>(x);
    return static_cast<std::uint16_t>(x != x ? word >> 16 | 0x40u
                                             : (word + 0x7fffu + (word >> 16 & 1u)) >> 16);
  }
};

}  // namespace skytape
