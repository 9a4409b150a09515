// Products of tiles on tensor cores, CUDA only: d [16, 8] += a [16, 16] b [16, 8] with operands
// rounded to tf32 or bf16 and f32 sums. A warp works together; the one place with PTX.
//
// Each lane holds some entries of a tile (PTX ISA, "Matrix fragments for mma.m16n8k16"). With
// g = lane / 4 and t = lane % 4:
//   Sums   rows g, g + 8;  columns 2t, 2t + 1
//   Left   rows g, g + 8;  inner index 2t, 2t + 1, 2t + 8, 2t + 9
//   Right  column g;       inner index 2t, 2t + 1, 2t + 8, 2t + 9
// That is bf16's layout. tf32 takes two instructions of inner size 8 whose lanes hold the inner
// indices t and t + 4. A product does not mind in which order its inner index counts, so they are
// called 2t and 2t + 1 on both sides, and the layout is the same. Hence two Sums side by side are
// lane by lane a Left operand: weights go from one product to the next without leaving registers.
#pragma once

#include <cstdint>

#include "tensor/gemm/precision.hpp"
#include "tensor/launch/cuda.hpp"
#ifdef SKYTAPE_CUDA_SIMULATED
#include <tensor_core.hpp>  // of tests/cuda_simulator
#endif

namespace skytape::cuda {

/// A lane's part of d.
struct Sums {
  float x[2][2] = {};
};  // [row g or g + 8, column 2t or 2t + 1]

namespace ptx {
#ifdef SKYTAPE_CUDA_SIMULATED
using cuda_simulator::mma_bf16;
using cuda_simulator::mma_tf32;
using cuda_simulator::round_bf16;
using cuda_simulator::round_tf32;
#else
__device__ __forceinline__ std::uint32_t round_tf32(float x) {
  std::uint32_t result;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(result) : "f"(x));
  return result;
}
__device__ __forceinline__ std::uint16_t round_bf16(float x) {
  std::uint16_t result;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result) : "f"(x));
  return result;
}
__device__ __forceinline__ void mma_tf32(float (&d)[4], const std::uint32_t (&a)[4],
                                         const std::uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ __forceinline__ void mma_bf16(float (&d)[4], const std::uint32_t (&a)[4],
                                         const std::uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#endif
}  // namespace ptx

/// Number: an entry of a or b in memory. left and right pack a lane's entries.
template <Precision kPrecision> struct TensorCore;

template <> struct TensorCore<Precision::tf32> {
  using Number = std::uint32_t;
  struct Left {
    std::uint32_t r[2][4];
  };  // of either instruction
  struct Right {
    std::uint32_t r[2][2];
  };

  __device__ static Number rounded(float x) { return ptx::round_tf32(x); }
  /// n: [row half, inner index]
  __device__ static Left left(const Number (&n)[2][4]) {
    return {{{n[0][0], n[1][0], n[0][1], n[1][1]}, {n[0][2], n[1][2], n[0][3], n[1][3]}}};
  }
  __device__ static Right right(Number n0, Number n1, Number n2, Number n3) {
    return {{{n0, n1}, {n2, n3}}};
  }
  __device__ static void multiply_add(Sums& sums, const Left& a, const Right& b) {
    float d[4] = {sums.x[0][0], sums.x[0][1], sums.x[1][0], sums.x[1][1]};
    ptx::mma_tf32(d, a.r[0], b.r[0]);
    ptx::mma_tf32(d, a.r[1], b.r[1]);
    sums = {{{d[0], d[1]}, {d[2], d[3]}}};
  }
};

template <> struct TensorCore<Precision::bf16> {
  using Number = std::uint16_t;
  struct Left {
    std::uint32_t r[4];
  };
  struct Right {
    std::uint32_t r[2];
  };

  __device__ static Number rounded(float x) { return ptx::round_bf16(x); }
  __device__ static std::uint32_t pair(Number low, Number high) {
    return static_cast<std::uint32_t>(low) | static_cast<std::uint32_t>(high) << 16;
  }
  __device__ static Left left(const Number (&n)[2][4]) {
    return {{pair(n[0][0], n[0][1]), pair(n[1][0], n[1][1]), pair(n[0][2], n[0][3]),
             pair(n[1][2], n[1][3])}};
  }
  __device__ static Right right(Number n0, Number n1, Number n2, Number n3) {
    return {{pair(n0, n1), pair(n2, n3)}};
  }
  __device__ static void multiply_add(Sums& sums, const Left& a, const Right& b) {
    float d[4] = {sums.x[0][0], sums.x[0][1], sums.x[1][0], sums.x[1][1]};
    ptx::mma_bf16(d, a.r, b.r);
    sums = {{{d[0], d[1]}, {d[2], d[3]}}};
  }
};

}  // namespace skytape::cuda
