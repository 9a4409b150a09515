// What attention kernels on tensor cores are made of, CUDA only: tiled_tensor_core.cu walks all keys,
// blocks/block_attention_tensor_core.cu walks lists of blocks (Dao, "FlashAttention-2", 2023).
//
// A warp owns 16 rows, a block of four warps kBlockM = 64 (of eight 128), whose fragments stay in
// registers, rounded to tf32 or bf16; the block loops over tiles of kBlockN rows of the other operand in
// shared memory. M, N and K are here a product's, of a tile: own rows, walked rows, the head's width; not
// the N queries and M keys of tiled.hpp. Weights go from the score product to the value product within a
// lane's registers (tensor_core.hpp). Exponentials, sums and row statistics stay f32. Scores carry a
// factor log2(e), so that an exponential is one instruction.
#pragma once

#include <cuda_pipeline.h>

#include <cstdint>
#include <limits>
#include <numbers>

#include "tensor/gemm/precision.hpp"
#include "tensor/gemm/tensor_core.hpp"
#include "tensor/launch/cuda.hpp"
#include "tensor/launch/math.hpp"

namespace skytape::attention::tensor_core_tiles {

using cuda::Accumulator;
using cuda::kMmaK;
using cuda::kMmaN;
using cuda::LaneMap;
using cuda::TensorCore;
using cuda::WarpRows;
using cuda::ptx::exp2;

inline constexpr int kBlockM = 64, kBlockN = 64;  // own and walked rows; k is the head's width
inline constexpr int kWarps = 4;
inline constexpr int kThreads = kWarps * cuda::kWarp;
inline constexpr int kWarpM = kBlockM / kWarps;  // own rows of a warp
inline constexpr float kNothing = -std::numeric_limits<float>::infinity();
inline constexpr float kLog2E = std::numbers::log2e_v<float>, kLn2 = std::numbers::ln2_v<float>;
static_assert(kWarpM == cuda::kMmaM);

/// Products of one precision and head widths up to kWidth. `Rows` gives the address of an own
/// row of the result, or null: nothing to store.
template <Precision kPrecision, int kHeadWidth> struct Products {
  static constexpr int kWidth = kHeadWidth;
  using Core = TensorCore<kPrecision>;
  using Number = typename Core::Number;
  using FragmentA = typename Core::FragmentA;
  using FragmentB = typename Core::FragmentB;
  static constexpr int kStride = kWidth + 8;  // of a tile's row: eight rows then touch every bank
  struct Tile {
    alignas(16) Number n[kBlockN * kStride];
  };
  struct alignas(2 * sizeof(Number)) Two {
    Number x[2];
  };
  static constexpr int kSteps = kWidth / kMmaK;  // along the head width
  static constexpr int kOuts = kWidth / kMmaN;   // columns of results

  /// This warp's rows of a rounded array [.., kWidth] as fragments A; `first`: the block's first.
  __device__ static void load_own(const WarpRows& at, const Number* first,
                                  FragmentA (&own)[kSteps]) {
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      Number n[2][4];
#pragma unroll
      for (int i = 0; i < 8; i += 2) {
        const Number* const from =
            first + at.row_of(i / 4) * kWidth + kMmaK * s + 2 * at.t + i % 4 / 2 * 8;
        const Two two = *reinterpret_cast<const Two*>(from);
        n[i / 4][i % 4] = two.x[0];
        n[i / 4][i % 4 + 1] = two.x[1];
      }
      own[s] = Core::fragment_a(n);
    }
  }

  /// Begins to copy rows [kBlockN, kWidth] of a rounded array to shared memory, by all threads of a
  /// block; they are there after __pipeline_wait_prior of each thread and a barrier.
  template <int kBlockThreads = kThreads>
  __device__ static void begin_tile(const Number* first, Tile& target) {
    constexpr int kRun = 16 / sizeof(Number);  // numbers of one copy
    constexpr int kRuns = kWidth / kRun;       // of a row
    static_assert(kBlockN * kRuns % kBlockThreads == 0);
#pragma unroll
    for (int i = 0; i < kBlockN * kRuns / kBlockThreads; ++i) {
      const int e = i * kBlockThreads + threadIdx.x;
      __pipeline_memcpy_async(target.n + e / kRuns * kStride + e % kRuns * kRun, first + e * kRun,
                              16);
    }
  }

  /// Own rows times rows [first, first + 8) of a tile, over the head width, on top of `sums`: the columns
  /// of B are rows of the tile, as of K in Q K^T, and need no transposition.
  __device__ static Accumulator scores(const WarpRows& at, const FragmentA (&own)[kSteps],
                                       const Tile& tile, int first, Accumulator sums = {}) {
    if constexpr (Core::kHasLdmatrix) {
#pragma unroll
      for (int s = 0; s < kSteps; s += 2) {
        FragmentB two[2];
        Core::ldmatrix_b_along_k(tile.n + first * kStride + kMmaK * s, kStride, two);
        Core::mma(sums, own[s], two[0]);
        Core::mma(sums, own[s + 1], two[1]);
      }
    } else {
      const Number* const row = tile.n + (first + at.g) * kStride + 2 * at.t;
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
        const Number* const n = row + kMmaK * s;
        Core::mma(sums, own[s], Core::fragment_b(n[0], n[1], n[8], n[9]));
      }
    }
    return sums;
  }

  /// total += weights (16 own rows by 16 of the tile, from `first` on) times rows of the tile: the rows of
  /// B are rows of the tile, as of V in W V; a lane needs columns, so they are read transposed.
  __device__ static void add_weighted(const WarpRows& at, const Accumulator (&weights)[2],
                                      const Tile& tile, int first, Accumulator (&total)[kOuts]) {
    const FragmentA a = Core::rounded_a(weights);
    if constexpr (Core::kHasLdmatrix) {
#pragma unroll
      for (int c = 0; c < kOuts; c += 2) {
        FragmentB two[2];
        Core::ldmatrix_b_trans(tile.n + first * kStride + kMmaN * c, kStride, two);
        Core::mma(total[c], a, two[0]);
        Core::mma(total[c + 1], a, two[1]);
      }
    } else {
      const Number* const n = tile.n + (first + 2 * at.t) * kStride + at.g;
#pragma unroll
      for (int c = 0; c < kOuts; ++c) {
        const Number* const m = n + kMmaN * c;
        Core::mma(total[c], a, Core::fragment_b(m[0], m[kStride], m[8 * kStride], m[9 * kStride]));
      }
    }
  }

  /// Stores factor[half] * total to own rows.
  template <class Rows>
  __device__ static void store(const WarpRows& at, const Accumulator (&total)[kOuts],
                               const float (&factor)[2], const Rows& rows, std::int64_t width) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float* const to = rows(at.row_of(half));
      if (to == nullptr) continue;
#pragma unroll
      for (int c = 0; c < kOuts; ++c) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int channel = kMmaN * c + 2 * at.t + e;
          if (channel < width) to[channel] = factor[half] * total[c].x[half][e];
        }
      }
    }
  }
};

/// Begins to copy entries [kBlockN] to shared memory; waits as for a tile.
__device__ inline void begin_entries(const float* first, float* target) {
  constexpr int kRun = 16 / sizeof(float);
  if (threadIdx.x < kBlockN / kRun) {
    __pipeline_memcpy_async(target + threadIdx.x * kRun, first + threadIdx.x * kRun, 16);
  }
}

/// An accumulator whose rows are all entries [first, first + 8) of a tile's: what sums start from.
__device__ inline Accumulator of_columns(const LaneMap& at, const float* entries, int first) {
  struct alignas(8) Two {
    float x[2];
  };
  const Two two = *reinterpret_cast<const Two*>(entries + first + 2 * at.t);
  return {{{two.x[0], two.x[1]}, {two.x[0], two.x[1]}}};
}

/// Over the four lanes of a row.
__device__ inline float row_max(float x) {
  return cuda::warp_reduce_up<1, 4>(x, [](float a, float b) { return fmaxf(a, b); });
}
__device__ inline float row_sum(float x) { return cuda::warp_reduce_up<1, 4>(x); }

/// Makes unnormalised weights exp2(scale (score - running maximum)) of one row of scores, and moves the
/// row's running maximum and the lane's sum; returns what earlier sums must be multiplied by.
__device__ inline float softmax_row(Accumulator (&score)[kBlockN / kMmaN], float scale, int half,
                                    float& maximum, float& sum) {
  float largest = maximum;
#pragma unroll
  for (int n = 0; n < kBlockN / kMmaN; ++n) {
    largest = fmaxf(largest, fmaxf(score[n].x[half][0], score[n].x[half][1]));
  }
  largest = row_max(largest);
  const bool nothing = largest == kNothing;  // padding so far: all weights 0
  const float reference = nothing ? 0.0f : scale * largest;
  float total = 0;
#pragma unroll
  for (int n = 0; n < kBlockN / kMmaN; ++n) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      float& x = score[n].x[half][e];
      x = exp2(scale * x - reference);
      total += x;
    }
  }
  const float correction = exp2(scale * maximum - reference);  // 0 where nothing was before
  sum = sum * correction + total;
  maximum = largest;
  return correction;
}

/// The log-sum-exp of a row, base e; -inf where nothing counts.
__device__ inline float log_sum_exp(float maximum, float sum) {
  return kLn2 * maximum + math::log(sum);
}

/// A tile's softmax: scores become unnormalised weights, and earlier sums are rescaled.
template <int kOuts> __device__ void softmax_tile(Accumulator (&score)[kBlockN / kMmaN],
                                                  float scale, float (&maximum)[2], float (&sum)[2],
                                                  Accumulator (&total)[kOuts]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float correction = softmax_row(score, scale, half, maximum[half], sum[half]);
#pragma unroll
    for (int c = 0; c < kOuts; ++c) {
      total[c].x[half][0] *= correction;
      total[c].x[half][1] *= correction;
    }
  }
}

/// Calls f.operator()<precision, kWidth>() for the device's precision, tf32 or bf16, and the smallest
/// compiled width that holds the head.
template <class F> void dispatch(std::int64_t width, const F& f) {
  const auto by_width = [&]<Precision kPrecision>() {
    if (width <= 32) {
      f.template operator()<kPrecision, 32>();
    } else {
      f.template operator()<kPrecision, 64>();
    }
  };
  if (precision(Device::cuda) == Precision::tf32) {
    by_width.template operator()<Precision::tf32>();
  } else {
    by_width.template operator()<Precision::bf16>();
  }
}

}  // namespace skytape::attention::tensor_core_tiles
