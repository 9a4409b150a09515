// Building blocks of attention kernels on tensor cores, CUDA only: tiled_tensor_core.cu walks all
// keys, blocks/block_attention_tensor_core.cu walks lists of blocks (Dao, "FlashAttention-2",
// 2023).
//
// A warp owns kTall times 16 rows, whose fragments stay in registers, rounded to tf32 or bf16; the
// block loops over tiles of kBlockN rows of the other operand in shared memory, and what a warp
// reads of them serves all of its rows. M, N and K are here a product's, of a tile: own rows,
// walked rows, the head's width; not the N queries and M keys of tiled.hpp. Weights go from the
// score product to the value product within a lane's registers (tensor_core.hpp). Exponentials,
// sums and row statistics stay f32. Scores include a factor log2(e), so that an exponential is one
// instruction.
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

inline constexpr int kBlockM = 64, kBlockN = 64;  // own rows of one fragment a warp; walked rows
inline constexpr int kWarps = 4;
inline constexpr int kThreads = kWarps * cuda::kWarp;
inline constexpr int kWarpM = kBlockM / kWarps;  // own rows of a warp
inline constexpr float kNothing = -std::numeric_limits<float>::infinity();
inline constexpr float kLog2E = std::numbers::log2e_v<float>, kLn2 = std::numbers::ln2_v<float>;
static_assert(kWarpM == cuda::kMmaM);

/// To entries c and c + 1 of a row, as far as it has them.
__device__ inline void store_two(float first, float second, float* row, int c, std::int64_t width) {
  if (c < width) row[c] = first;
  if (c + 1 < width) row[c + 1] = second;
}
/// Products of one precision and head widths up to kWidth, of kTall fragments of own rows. `Rows`
/// gives the address of an own row of the result, or null: nothing to store.
template <Precision kPrecision, int kHeadWidth, int kFragments = 1> struct Products {
  static constexpr Precision kNumbers = kPrecision;
  static constexpr int kWidth = kHeadWidth, kTall = kFragments;
  static constexpr int kSpan = 32;  // walked rows whose scores are in registers together: forward
  static constexpr int kSlice = kMmaK;  // … in backward
  static constexpr int kTogether = 1;   // … eights of them whose products are begun together
  using Core = TensorCore<kPrecision>;
  using Number = typename Core::Number;
  using FragmentA = typename Core::FragmentA;
  using FragmentB = typename Core::FragmentB;
  static constexpr int kStride = kWidth + 8;  // of a tile's row: eight rows then touch every bank
  struct Tile {
    alignas(16) Number n[kBlockN * kStride];
  };
  static constexpr int kSteps = kWidth / kMmaK;  // along the head width
  static constexpr int kOuts = kWidth / kMmaN;   // columns of results
  using Own = FragmentA[kTall][kSteps];
  using Total = Accumulator[kTall][kOuts];

  /// Returns the place of a lane in a fragment of its warp.
  __device__ static WarpRows rows(int fragment) { return WarpRows(fragment, kTall); }

  /// This warp's rows of a rounded array [.., kWidth] as fragments A; `first`: the block's first.
  __device__ static void load_own(const Number* first, Own& own) {
#pragma unroll
    for (int f = 0; f < kTall; ++f) {
      const WarpRows at = rows(f);
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
        const Number* const from = first + at.row * kWidth + kMmaK * s;
        own[f][s] = Core::load_a(at, from, kWidth);
      }
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

  /// Called when a thread's copies to shared memory came, before the barrier.
  __device__ static void copies_came() {}
  // Kernels call these before products of sums and weights that they wrote, and after them, before
  // they read the sums. A warp's products need neither.
  template <class... Operands> __device__ static void before_products(Operands&...) {}
  template <class... Operands> __device__ static void after_products(Operands&...) {}
  /// Returns whether one of the threads that have products together says yes.
  [[nodiscard]] __device__ static bool any(bool yes) {
    return __ballot_sync(cuda::kAllLanes, yes ? 1 : 0) != 0;
  }

  /// sums += own rows times rows [first, first + 8) of a tile, over the head width: the columns of
  /// B are rows of the tile, as of K in Q K^T, and need no transposition.
  __device__ static void add_scores(const LaneMap& at, const Own& own, const Tile& tile, int first,
                                    Accumulator (&sums)[kTall]) {
#pragma unroll
    for (int s = 0; s < kSteps; s += 2) {
      FragmentB two[2];
      if constexpr (Core::kHasLdmatrix) {
        Core::ldmatrix_b_along_k(tile.n + first * kStride + kMmaK * s, kStride, two);
      } else {
        const Number* const n = tile.n + (first + at.g) * kStride + 2 * at.t + kMmaK * s;
        two[0] = Core::fragment_b(n[0], n[1], n[8], n[9]);
        two[1] = Core::fragment_b(n[16], n[17], n[24], n[25]);
      }
#pragma unroll
      for (int f = 0; f < kTall; ++f) {
        Core::mma(sums[f], own[f][s], two[0]);
        Core::mma(sums[f], own[f][s + 1], two[1]);
      }
    }
  }

  /// Adds the scores of own rows with kEights times eight rows of a tile, from `first` on.
  template <int kEights> __device__ static void add_scores(const LaneMap& at, const Own& own,
                                                           const Tile& tile, int first,
                                                           Accumulator (&sums)[kEights][kTall]) {
#pragma unroll
    for (int n = 0; n < kEights; ++n) add_scores(at, own, tile, first + kMmaN * n, sums[n]);
  }

  /// total += weights (own rows by 16 of the tile, from `first` on) times rows of the tile: the
  /// rows of B are rows of the tile, as of V in W V; a lane needs columns, so they are read
  /// transposed.
  __device__ static void add_weighted(const FragmentA (&weights)[kTall], const Tile& tile,
                                      int first, Total& total) {
#pragma unroll
    for (int c = 0; c < kOuts; c += 2) {
      FragmentB two[2];
      Core::ldmatrix_b_trans(tile.n + first * kStride + kMmaN * c, kStride, two);
#pragma unroll
      for (int f = 0; f < kTall; ++f) {
        Core::mma(total[f][c], weights[f], two[0]);
        Core::mma(total[f][c + 1], weights[f], two[1]);
      }
    }
  }

  /// Adds weights (own rows by kSixteens times 16 of the tile, from `first` on) times these rows.
  template <int kSixteens>
  __device__ static void add_weighted(const FragmentA (&weights)[kSixteens][kTall],
                                      const Tile& tile, int first, Total& total) {
#pragma unroll
    for (int c = 0; c < kSixteens; ++c) add_weighted(weights[c], tile, first + kMmaK * c, total);
  }

  /// Stores factor * total to own rows; factor: of each fragment's row halves.
  template <class Rows> __device__ static void store(const Total& total,
                                                     const float (&factor)[kTall][2],
                                                     const Rows& to_row, std::int64_t width) {
#pragma unroll
    for (int f = 0; f < kTall; ++f) {
      const WarpRows at = rows(f);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const auto to = to_row(at.row_of(half));
        if (to == nullptr) continue;
#pragma unroll
        for (int c = 0; c < kOuts; ++c) {
          const auto& x = total[f][c].x[half];
          store_two(factor[f][half] * x[0], factor[f][half] * x[1], to, kMmaN * c + 2 * at.t,
                    width);
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

/// Writes what sums start from: start(first column, fragment) for each eight of columns.
template <int kEights, int kTall, class Start>
__device__ void start_from(const Start& start, Accumulator (&sums)[kEights][kTall]) {
#pragma unroll
  for (int i = 0; i < kEights * kTall; ++i) {
    sums[i / kTall][i % kTall] = start(i / kTall * kMmaN, i % kTall);
  }
}

/// Over the four lanes of a row.
__device__ inline float row_max(float x) {
  return cuda::warp_reduce_up<1, 4>(x, [](float a, float b) { return fmaxf(a, b); });
}
__device__ inline float row_sum(float x) { return cuda::warp_reduce_up<1, 4>(x); }

/// Weights of own rows for 16 columns an entry, rounded for a product.
template <class P, int kEights> using Weights = typename P::FragmentA[kEights / 2][P::kTall];

template <class P, int kEights>
__device__ void round(const Accumulator (&weight)[kEights][P::kTall],
                      Weights<P, kEights>& rounded) {
#pragma unroll
  for (int c = 0; c < kEights / 2; ++c) {
#pragma unroll
    for (int f = 0; f < P::kTall; ++f) {
      rounded[c][f] = P::Core::rounded_a({weight[2 * c][f], weight[2 * c + 1][f]});
    }
  }
}

/// The softmax of own rows whose scores come some at a time, without their maxima: weights are
/// relative to a reference, the largest score of a row's first columns. Later weights may exceed 1.
/// Where their sum exceeds 2^60, half of a float's range, the columns are done again, with a new
/// reference from their maximum, and what was summed before is rescaled. A row's result depends on
/// its own scores only.
template <class P> class RunningSoftmax {
 public:
  static constexpr int kTall = P::kTall;

  __device__ RunningSoftmax() {
#pragma unroll
    for (int r = 0; r < 2 * kTall; ++r) reference_[r / 2][r % 2] = kLowest;
  }

  /// Makes weights exp2(scale score - reference) of the scores that `multiply` fills in, and
  /// rescales the `total` of earlier ones where a reference moves. A score of -inf has weight 0.
  /// `multiply` may be called twice, and begins from fresh accumulators each time.
  template <int kEights, class Multiply>
  __device__ void weigh(const Multiply& multiply, float scale,
                        Accumulator (&weight)[kEights][kTall], Weights<P, kEights>& rounded,
                        typename P::Total& total) {
    unsigned moves = first_ ? ~0u : 0u;  // bit r: row r gets a reference from these columns
#pragma unroll 1
    for (bool moving = first_;; moving = true) {
      multiply(weight);
      if (moving) move(weight, scale, moves, total);
#pragma unroll
      for (int i = 0; i < 4 * kEights * kTall; ++i) {
        const int n = i / 4 / kTall, f = i / 4 % kTall, half = i / 2 % 2;
        float& x = weight[n][f].x[half][i % 2];
        x = exp2(scale * x - reference_[f][half]);
      }
      round<P>(weight, rounded);
      float sum[kTall][2];
      add(rounded, sum);
#pragma unroll
      for (int r = 0; r < 2 * kTall && !moving; ++r) {
        moves |= sum[r / 2][r % 2] > kLargest ? 1u << r : 0u;
      }
      if (!moving && P::any(moves != 0)) continue;
#pragma unroll
      for (int r = 0; r < 2 * kTall; ++r) sum_[r / 2][r % 2] = sum[r / 2][r % 2];
      first_ = false;
      return;
    }
  }
  /// Returns 1 / sum of a row, or 0 where nothing counts.
  [[nodiscard]] __device__ float inverse(int f, int half) const {
    const float sum = sum_[f][half];
    return sum > 0 ? 1 / sum : 0.0f;
  }
  /// log sum exp(score), base e: -inf where nothing counts.
  [[nodiscard]] __device__ float log_sum(int f, int half) const {
    return kLn2 * reference_[f][half] + math::log(sum_[f][half]);
  }

 private:
  static constexpr float kLargest = 0x1p60f, kLowest = -std::numeric_limits<float>::max();

  /// sum = sum_ + weights as products have them, rounded: rows of v that are alike come out as they
  /// are. A product with ones costs less than additions, and gives all lanes of a row its sum.
  template <int kSlices> __device__ void add(const typename P::FragmentA (&rounded)[kSlices][kTall],
                                             float (&sum)[kTall][2]) const {
    const auto one = P::Core::rounded(1);
    const auto ones = P::Core::fragment_b(one, one, one, one);
#pragma unroll
    for (int f = 0; f < kTall; ++f) {
      Accumulator all;
#pragma unroll
      for (int c = 0; c < kSlices; ++c) P::Core::mma(all, rounded[c][f], ones);
      sum[f][0] = sum_[f][0] + all.x[0][0];
      sum[f][1] = sum_[f][1] + all.x[1][0];
    }
  }

  template <int kEights> __device__ void move(const Accumulator (&score)[kEights][kTall],
                                              float scale, unsigned which,
                                              typename P::Total& total) {
#pragma unroll
    for (int r = 0; r < 2 * kTall; ++r) {
      const int f = r / 2, half = r % 2;
      float largest = kNothing;
#pragma unroll
      for (int n = 0; n < kEights; ++n) {
        largest = fmaxf(largest, fmaxf(score[n][f].x[half][0], score[n][f].x[half][1]));
      }
      largest = scale * row_max(largest);
      float& reference = reference_[f][half];
      const float before = reference;
      if ((which >> r & 1u) != 0) reference = fmaxf(largest, kLowest);  // of -inf: none yet
      const float correction =
          exp2(before - reference);  // 0 where nothing was before, 1 if it stays
      sum_[f][half] *= correction;
#pragma unroll
      for (int c = 0; c < P::kOuts; ++c) {
        total[f][c].x[half][0] *= correction;
        total[f][c].x[half][1] *= correction;
      }
    }
  }

  float reference_[kTall][2], sum_[kTall][2] = {};
  bool first_ = true;  // no columns yet
};

/// Calls f.operator()<precision, kWidth>() for the device's precision, tf32 or bf16, and the
/// smallest compiled width that holds the head.
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
