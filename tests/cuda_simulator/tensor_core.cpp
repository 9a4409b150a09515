#include "tests/cuda_simulator/tensor_core.hpp"

#include <bit>
#include <cmath>
#include <limits>

#include "tests/cuda_simulator/warp.hpp"

namespace skytape::cuda_simulator {
namespace {

constexpr std::uint32_t kUnwritten = 0xffff;  // NaN

/// One lane's registers.
struct Registers {
  float* d;
  const std::uint32_t *a, *b;
};

/// One lane's registers of wgmma, and B's descriptor.
struct WgmmaOperands {
  float* sums;
  const std::uint32_t* a;
  std::uint64_t b;
  bool transposed;
};

float low_half(std::uint32_t word) { return std::bit_cast<float>(word << 16); }
float high_half(std::uint32_t word) { return std::bit_cast<float>(word & 0xffff0000u); }

/// The whole tiles: d [16, 8] += a [16, kInner] b [kInner, 8].
template <int kInner> struct Tiles {
  float a[16][kInner], b[kInner][8];

  void multiply_add(void* const (&slots)[kWarp]) const {
    for (int lane = 0; lane < kWarp; ++lane) {
      if (slots[lane] == nullptr) continue;
      float* const d = static_cast<const Registers*>(slots[lane])->d;
      const int group = lane / 4, in_group = lane % 4;
      for (int i = 0; i < 4; ++i) {
        const int row = group + (i < 2 ? 0 : 8), column = 2 * in_group + (i & 1);
        float sum = 0;
        for (int k = 0; k < kInner; ++k) sum += a[row][k] * b[k][column];
        d[i] += sum;
      }
    }
  }
};

void tf32_lanes(void* const (&slots)[kWarp]) {
  Tiles<8> tiles{};
  // The hardware reads the upper 19 bits of a register.
  const auto number = [](std::uint32_t word) { return std::bit_cast<float>(word & ~0x1fffu); };
  for (int lane = 0; lane < kWarp; ++lane) {
    if (slots[lane] == nullptr) continue;
    const auto& r = *static_cast<const Registers*>(slots[lane]);
    const int group = lane / 4, in_group = lane % 4;
    for (int i = 0; i < 4; ++i) {
      const int row = group + (i == 0 || i == 2 ? 0 : 8), column = in_group + (i < 2 ? 0 : 4);
      tiles.a[row][column] = number(r.a[i]);
    }
    for (int i = 0; i < 2; ++i) tiles.b[in_group + 4 * i][group] = number(r.b[i]);
  }
  tiles.multiply_add(slots);
}

void bf16_lanes(void* const (&slots)[kWarp]) {
  Tiles<16> tiles{};
  const auto number = [](std::uint32_t word, int half) {
    return half == 0 ? low_half(word) : high_half(word);
  };
  for (int lane = 0; lane < kWarp; ++lane) {
    if (slots[lane] == nullptr) continue;
    const auto& r = *static_cast<const Registers*>(slots[lane]);
    const int group = lane / 4, in_group = lane % 4;
    for (int i = 0; i < 8; ++i) {
      const int row = group + (i < 2 || (i >= 4 && i < 6) ? 0 : 8);
      const int column = 2 * in_group + (i & 1) + (i < 4 ? 0 : 8);
      tiles.a[row][column] = number(r.a[i / 2], i & 1);
    }
    for (int i = 0; i < 4; ++i) {
      tiles.b[2 * in_group + (i & 1) + (i < 2 ? 0 : 8)][group] = number(r.b[i / 2], i & 1);
    }
  }
  tiles.multiply_add(slots);
}

/// Multiplies a warp's 16 rows of wgmma's tiles: d [16, 64] += a [16, 16] b [16, 64].
void wgmma_lanes(void* const (&slots)[kWarp]) {
  float a[16][16] = {}, b[16][64];
  const WgmmaOperands* any = nullptr;
  for (int lane = 0; lane < kWarp; ++lane) {
    if (slots[lane] == nullptr) continue;
    any = static_cast<const WgmmaOperands*>(slots[lane]);
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + i % 2 * 8, column = lane % 4 * 2 + i / 2 * 8;
      a[row][column] = low_half(any->a[i]);
      a[row][column + 1] = high_half(any->a[i]);
    }
  }
  const int rows = any->transposed ? 16 : 64;  // of shared memory
  for (int row = 0; row < rows; ++row) {
    for (int column = 0; column < 16 * 64 / rows; column += 8) {
      std::uint16_t eight[8];
      read_eight_of_b(any->b, row, column, eight);
      for (int i = 0; i < 8; ++i) {
        (any->transposed ? b[row][column + i] : b[column + i][row]) = low_half(eight[i]);
      }
    }
  }
  for (int lane = 0; lane < kWarp; ++lane) {
    if (slots[lane] == nullptr) continue;
    float* const d = static_cast<const WgmmaOperands*>(slots[lane])->sums;
    for (int i = 0; i < 32; ++i) {
      const int row = lane / 4 + i % 4 / 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
      float sum = 0;
      for (int k = 0; k < 16; ++k) sum += a[row][k] * b[k][column];
      d[i] += sum;
    }
  }
}

template <bool kTransposed> void matrix_lanes(void* const (&slots)[kWarp]) {
  for (int lane = 0; lane < kWarp; ++lane) {
    for (int m = 0; m < 4; ++m) {
      std::uint32_t halves[2];
      for (int e = 0; e < 2; ++e) {
        const int row = lane / 4, column = lane % 4 * 2 + e;
        const void* const from = slots[8 * m + (kTransposed ? column : row)];
        halves[e] = from == nullptr
                        ? kUnwritten
                        : static_cast<const MatrixRow*>(from)->numbers[kTransposed ? row : column];
      }
      if (slots[lane] == nullptr) continue;  // it has ended
      static_cast<const MatrixRow*>(slots[lane])->result[m] = halves[0] | halves[1] << 16;
    }
  }
}

}  // namespace

std::uint32_t round_tf32(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if ((bits & 0x7f800000u) == 0x7f800000u) return x == x ? bits : 0x7fffffffu;
  return (bits + 0x1000u) & ~0x1fffu;
}

void mma_m16n8k8_tf32(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  Registers slot{d, a, b};
  warp_together(0xffffffffu, tf32_lanes, &slot);
}
void mma_m16n8k16_bf16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  Registers slot{d, a, b};
  warp_together(0xffffffffu, bf16_lanes, &slot);
}

float exp2(float x) {
  const float y = std::exp2(x);
  return y < std::numeric_limits<float>::min() ? 0.0f : y;  // NaN stays
}

void begin_wgmma(float (&d)[32], const std::uint32_t (&a)[4], std::uint64_t b, bool transposed) {
  WgmmaOperands slot{begun_sums(d), a, b, transposed};
  warp_together(0xffffffffu, wgmma_lanes, &slot);
}

void exchange_matrices(MatrixRow& row, bool transposed) {
  warp_together(0xffffffffu, transposed ? matrix_lanes<true> : matrix_lanes<false>, &row);
}

}  // namespace skytape::cuda_simulator
