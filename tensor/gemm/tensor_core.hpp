// Products of tiles on tensor cores, CUDA only: C [16, 8] += A [16, 16] B [16, 8] with A and B
// rounded to tf32 or bf16 and f32 accumulators. A warp works together.
//
// The lane map: each lane holds some entries of a tile, its fragment (PTX ISA, "Matrix fragments
// for mma.m16n8k16"; a picture is in README.md). With g = lane / 4 and t = lane % 4:
//   Accumulator  rows g, g + 8;  columns 2t, 2t + 1
//   FragmentA    rows g, g + 8;  k = 2t, 2t + 1, 2t + 8, 2t + 9
//   FragmentB    column g;       k = 2t, 2t + 1, 2t + 8, 2t + 9
// That is bf16's. tf32 takes two instructions with k = 8 whose lanes hold k = t and t + 4. A
// product does not mind in which order k counts, so they are called 2t and 2t + 1 on both sides,
// and the map is the same. Hence two accumulators side by side are lane by lane a fragment A:
// weights go from one product to the next without leaving registers.
#pragma once

#include <bit>
#include <cstdint>

#include "tensor/core/bf16.hpp"
#include "tensor/gemm/precision.hpp"
#include "tensor/launch/cuda.hpp"
#include "tensor/launch/fast_math.hpp"
#ifdef SKYTAPE_CUDA_SIMULATED
#include <tensor_core.hpp>  // of tests/cuda_simulator
#endif

namespace skytape::cuda {

constexpr int kMmaM = 16, kMmaN = 8, kMmaK = 16;  // of a product of tiles

/// A lane's part of C.
struct Accumulator {
  float x[2][2] = {};
};  // [row g or g + 8, column 2t or 2t + 1]

/// The place of a lane in its warp's tiles.
struct LaneMap {
  int g, t;
  __device__ LaneMap() : g(threadIdx.x % kWarp / 4), t(threadIdx.x % 4) {}
};
/// The same where each warp owns 16 rows of the block's, or `fragments` times as many: those of
/// one.
struct WarpRows : LaneMap {
  int row;  // the first
  __device__ WarpRows() : row(threadIdx.x / kWarp * kMmaM) {}
  __device__ WarpRows(int fragment, int fragments)
      : row((threadIdx.x / kWarp * fragments + fragment) * kMmaM) {}
  __device__ int row_of(int half) const { return row + g + 8 * half; }
};

namespace ptx {
#ifdef SKYTAPE_CUDA_SIMULATED
using cuda_simulator::ldmatrix_x4;
using cuda_simulator::ldmatrix_x4_trans;
using cuda_simulator::mma_m16n8k16_bf16;
using cuda_simulator::mma_m16n8k8_tf32;
using cuda_simulator::round_tf32;
using cuda_simulator::round_two_bf16;
#else
__device__ __forceinline__ std::uint32_t round_tf32(float x) {
  std::uint32_t result;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(result) : "f"(x));
  return result;
}
/// Two together; the first is the lower half.
__device__ __forceinline__ std::uint32_t round_two_bf16(float first, float second) {
  std::uint32_t result;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(second), "f"(first));
  return result;
}
__device__ __forceinline__ void mma_m16n8k8_tf32(float (&d)[4], const std::uint32_t (&a)[4],
                                                 const std::uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ __forceinline__ void mma_m16n8k16_bf16(float (&d)[4], const std::uint32_t (&a)[4],
                                                  const std::uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
/// Four matrices of 8 x 8 numbers from shared memory: lanes 8 m to 8 m + 7 say where the rows of
/// matrix m are, 16 bytes each, and register m gets numbers 2t and 2t + 1 of its row g.
__device__ __forceinline__ void ldmatrix_x4(std::uint32_t (&r)[4], const std::uint16_t* row) {
  const auto at = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(at));
}
/// The same of the transposed matrices: numbers 2t and 2t + 1 of column g.
__device__ __forceinline__ void ldmatrix_x4_trans(std::uint32_t (&r)[4], const std::uint16_t* row) {
  const auto at = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(at));
}
#endif
}  // namespace ptx

/// Number: an entry of A or B in memory. fragment_a and fragment_b pack a lane's entries.
/// kHasLdmatrix: whether ldmatrix loads them, for which tf32's are too wide.
template <Precision kPrecision> struct TensorCore;

template <> struct TensorCore<Precision::tf32> {
  using Number = std::uint32_t;
  static constexpr bool kHasLdmatrix = false;
  struct FragmentA {
    std::uint32_t r[2][4];
  };  // of either instruction
  struct FragmentB {
    std::uint32_t r[2][2];
  };

  __device__ static Number rounded(float x) { return ptx::round_tf32(x); }
  __device__ static float value(Number n) { return std::bit_cast<float>(n); }
  /// The i-th of a lane's four entries of row g (half 0) or g + 8.
  __device__ static float entry(const FragmentA& a, int half, int i) {
    return value(a.r[i / 2][half + i % 2 * 2]);
  }
  /// n: [row half, k]
  __device__ static FragmentA fragment_a(const Number (&n)[2][4]) {
    return {{{n[0][0], n[1][0], n[0][1], n[1][1]}, {n[0][2], n[1][2], n[0][3], n[1][3]}}};
  }
  /// Two accumulators side by side, rounded.
  __device__ static FragmentA rounded_a(const Accumulator (&s)[2]) {
    Number n[2][4];
#pragma unroll
    for (int i = 0; i < 8; ++i) n[i / 4][i % 4] = rounded(s[i % 4 / 2].x[i / 4][i % 2]);
    return fragment_a(n);
  }
  __device__ static FragmentB fragment_b(Number n0, Number n1, Number n2, Number n3) {
    return {{{n0, n1}, {n2, n3}}};
  }
  /// A from memory. `corner`: the first number, rows are `stride` apart, both even.
  __device__ static FragmentA load_a(const LaneMap& at, const Number* corner, int stride) {
    struct alignas(8) Two {
      Number n[2];
    };
    const auto two = [&](int half, int k) {
      return *reinterpret_cast<const Two*>(corner + (at.g + 8 * half) * stride + 2 * at.t + k);
    };
    const Two a = two(0, 0), b = two(1, 0), c = two(0, 8), d = two(1, 8);
    return fragment_a({{a.n[0], a.n[1], c.n[0], c.n[1]}, {b.n[0], b.n[1], d.n[0], d.n[1]}});
  }
  // Loads the same fragments as bf16's functions of these names: tf32 is too wide for ldmatrix, so
  // each lane reads its own entries.
  __device__ static FragmentA ldmatrix_a(const Number* corner, int stride) {
    const LaneMap at;
    const Number* const a = corner + at.g * stride + 2 * at.t;
    const Number* const b = a + 8 * stride;
    return fragment_a({{a[0], a[1], a[8], a[9]}, {b[0], b[1], b[8], b[9]}});
  }
  __device__ static void ldmatrix_b(const Number* corner, int stride, FragmentB (&two)[2]) {
    const LaneMap at;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const Number* const n = corner + (8 * i + at.g) * stride + 2 * at.t;
      two[i] = fragment_b(n[0], n[1], n[8], n[9]);
    }
  }
  __device__ static void ldmatrix_b_trans(const Number* corner, int stride, FragmentB (&two)[2]) {
    const LaneMap at;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const Number* const n = corner + 2 * at.t * stride + 8 * i + at.g;
      two[i] = fragment_b(n[0], n[stride], n[8 * stride], n[9 * stride]);
    }
  }
  __device__ static void mma(Accumulator& c, const FragmentA& a, const FragmentB& b) {
    float d[4] = {c.x[0][0], c.x[0][1], c.x[1][0], c.x[1][1]};
    ptx::mma_m16n8k8_tf32(d, a.r[0], b.r[0]);
    ptx::mma_m16n8k8_tf32(d, a.r[1], b.r[1]);
    c = {{{d[0], d[1]}, {d[2], d[3]}}};
  }
};

template <> struct TensorCore<Precision::bf16> {
  using Number = std::uint16_t;
  static constexpr bool kHasLdmatrix = true;
  struct FragmentA {
    std::uint32_t r[4];
  };
  struct FragmentB {
    std::uint32_t r[2];
  };

  __device__ static Number rounded(float x) { return Bf16(x).bits; }
  __device__ static float value(Number n) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(n) << 16);
  }
  __device__ static float entry(const FragmentA& a, int half, int i) {
    const std::uint32_t two = a.r[half + i / 2 * 2];
    return std::bit_cast<float>(i % 2 == 0 ? two << 16 : two & 0xffff0000u);
  }
  __device__ static std::uint32_t pair(Number low, Number high) {
    return static_cast<std::uint32_t>(low) | static_cast<std::uint32_t>(high) << 16;
  }
  __device__ static FragmentA fragment_a(const Number (&n)[2][4]) {
    return {{pair(n[0][0], n[0][1]), pair(n[1][0], n[1][1]), pair(n[0][2], n[0][3]),
             pair(n[1][2], n[1][3])}};
  }
  __device__ static FragmentA rounded_a(const Accumulator (&s)[2]) {
    const auto two = [](const float(&x)[2]) { return ptx::round_two_bf16(x[0], x[1]); };
    return {{two(s[0].x[0]), two(s[0].x[1]), two(s[1].x[0]), two(s[1].x[1])}};
  }
  __device__ static FragmentB fragment_b(Number n0, Number n1, Number n2, Number n3) {
    return {{pair(n0, n1), pair(n2, n3)}};
  }
  /// A from memory. `corner`: the first number, rows are `stride` apart, both even. Pairs arrive as
  /// the registers hold them: packed from single numbers they are copied in every loop that uses
  /// them.
  __device__ static FragmentA load_a(const LaneMap& at, const Number* corner, int stride) {
    FragmentA a;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const Number* const two = corner + (at.g + i % 2 * 8) * stride + 2 * at.t + i / 2 * 8;
      a.r[i] = *reinterpret_cast<const std::uint32_t*>(two);
    }
    return a;
  }
  /// A from shared memory, whose rows are A's. `corner`: the first number, rows are `stride` apart.
  __device__ static FragmentA ldmatrix_a(const Number* corner, int stride) {
    const int lane = threadIdx.x % kWarp;
    FragmentA a;
    ptx::ldmatrix_x4(a.r, corner + lane % 16 * stride + lane / 16 * 8);
    return a;
  }
  /// A from shared memory, whose rows are A's columns.
  __device__ static FragmentA ldmatrix_a_trans(const Number* corner, int stride) {
    const int lane = threadIdx.x % kWarp;
    FragmentA a;
    ptx::ldmatrix_x4_trans(a.r, corner + (lane % 8 + lane / 16 * 8) * stride + lane / 8 % 2 * 8);
    return a;
  }
  /// Two B from shared memory, whose rows are B's columns: of k from 0 and from 16 on.
  __device__ static void ldmatrix_b_along_k(const Number* corner, int stride, FragmentB (&two)[2]) {
    const int lane = threadIdx.x % kWarp;
    std::uint32_t r[4];
    ptx::ldmatrix_x4(r, corner + lane % 8 * stride + lane / 8 * 8);
    two[0] = {{r[0], r[1]}};
    two[1] = {{r[2], r[3]}};
  }
  /// The same of one range of k and the columns from 0 and from 8 on.
  __device__ static void ldmatrix_b(const Number* corner, int stride, FragmentB (&two)[2]) {
    const int lane = threadIdx.x % kWarp;
    std::uint32_t r[4];
    ptx::ldmatrix_x4(r, corner + (lane % 8 + lane / 16 * 8) * stride + lane / 8 % 2 * 8);
    two[0] = {{r[0], r[1]}};
    two[1] = {{r[2], r[3]}};
  }
  /// Two B from shared memory, whose rows are B's: of columns from 0 and from 8 on.
  __device__ static void ldmatrix_b_trans(const Number* corner, int stride, FragmentB (&two)[2]) {
    const int lane = threadIdx.x % kWarp;
    std::uint32_t r[4];
    ptx::ldmatrix_x4_trans(r, corner + lane % 16 * stride + lane / 16 * 8);
    two[0] = {{r[0], r[1]}};
    two[1] = {{r[2], r[3]}};
  }
  __device__ static void mma(Accumulator& c, const FragmentA& a, const FragmentB& b) {
    float d[4] = {c.x[0][0], c.x[0][1], c.x[1][0], c.x[1][1]};
    ptx::mma_m16n8k16_bf16(d, a.r, b.r);
    c = {{{d[0], d[1]}, {d[2], d[3]}}};
  }
};

}  // namespace skytape::cuda
