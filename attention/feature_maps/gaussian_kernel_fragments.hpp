// Building blocks of fused kernel products on tensor cores (gaussian_kernel_tensor_core.cu): tiles
// of either side in shared memory, and the sums that a warp's own rows of one side form over the
// other side. Operands of products are rounded to tf32 or bf16, as are the rows that norms are
// taken of, so k(x, x) is 1; exponentials and sums stay f32. Exponents' terms include a factor
// log2(e), so that an exponential is one instruction.
#pragma once

#include <cstdint>
#include <limits>
#include <numbers>

#include "attention/feature_maps/gaussian_kernel_cuda.hpp"
#include "tensor/gemm/tensor_core.hpp"
#include "tensor/launch/cuda.hpp"
#include "tensor/launch/four.hpp"

namespace skytape::attention::kernel_cuda {

using cuda::Accumulator;
using cuda::kMmaK;
using cuda::WarpRows;

inline constexpr int kTile = 128;  // rows of either side
inline constexpr float kLog2E = std::numbers::log2e_v<float>;
static_assert(kTile / kWarps == cuda::kMmaM && kTile >= kLandmarks && kChunkRows % kTile == 0);

/// Over the four lanes of a row.
__device__ inline float over_row(float x) { return cuda::warp_reduce_up<1, 4>(x); }

/// Rows of one array in shared memory, rounded.
template <class Core, int kWidth> struct Tile {
  using Number = typename Core::Number;
  using FragmentA = typename Core::FragmentA;
  using FragmentB = typename Core::FragmentB;
  static constexpr int kStride = kWidth + 8;  // of a row: eight rows then touch every bank
  static constexpr int kSteps = kWidth / kMmaK;
  static constexpr int kOuts = kWidth / 8;
  static constexpr int kQuads = kWidth / 4;  // of a row
  alignas(16) Number n[kTile * kStride];

  __device__ float at(int row, int c) const { return Core::value(n[row * kStride + c]); }

  /// Rows of source [count, width] times their factors, zeros beyond.
  __device__ void load(const float* source, std::int64_t count, std::int64_t width,
                       const RowFactors& factors = {}) {
    each_four(source, count, width, factors, [](int, float) {});
  }
  /// The same with each row's term of the exponent, base 2, `less` (null: 0) taken from it: of rows
  /// beyond, C is 0.
  __device__ void load(const float* source, std::int64_t count, std::int64_t width, bool norms,
                       float* term, const RowFactors& factors = {}, const float* less = nullptr) {
    static_assert(cuda::kWarp % kQuads == 0 && kTile * kQuads % kThreads == 0);
    each_four(source, count, width, factors, [&](int e, float square) {
      square = cuda::warp_reduce<kQuads>(square);
      if (e % kQuads != 0) return;
      const int row = e / kQuads;
      const float inside = norms ? -0.5f * square : 0.0f;
      term[row] = row >= count      ? -std::numeric_limits<float>::infinity()
                  : less == nullptr ? kLog2E * inside
                                    : kLog2E * (inside - less[row]);
    });
  }
  /// The same rows without terms, and what `column` multiplies by as one more column.
  __device__ void load_beside(const float* source, std::int64_t count, std::int64_t width,
                              const RowFactors& factors, const RowFactors& column) {
    each_four(source, count, width, factors, [&](int e, float) {
      const int row = e / kQuads;
      if (e % kQuads != width / 4) return;
      n[row * kStride + width] = Core::rounded(row < count ? column.of(row) : 0.0f);
    });
  }

  /// The warp's own rows as fragments A.
  __device__ void own_rows(const WarpRows& at, FragmentA (&own)[kSteps]) const {
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      own[s] = Core::ldmatrix_a(n + at.row * kStride + kMmaK * s, kStride);
    }
  }
  /// Own rows times rows [first, first + 16), over the width: eight columns each.
  __device__ void scores(const FragmentA (&own)[kSteps], int first, Accumulator (&sums)[2]) const {
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      FragmentB two[2];
      Core::ldmatrix_b(n + first * kStride + kMmaK * s, kStride, two);
      Core::mma(sums[0], own[s], two[0]);
      Core::mma(sums[1], own[s], two[1]);
    }
  }
  /// total += weights, of 16 own rows, times rows [first, first + 16).
  __device__ void add_weighted(const FragmentA& weights, int first,
                               Accumulator (&total)[kOuts]) const {
    static_assert(kOuts % 2 == 0);
#pragma unroll
    for (int c = 0; c < kOuts; c += 2) {
      FragmentB two[2];
      Core::ldmatrix_b_trans(n + first * kStride + 8 * c, kStride, two);
      Core::mma(total[c], weights, two[0]);
      Core::mma(total[c + 1], weights, two[1]);
    }
  }

 private:
  /// Loads this thread's share of the rows, four numbers at a time, and calls f(e, square) for the
  /// e-th four and the sum of their squares.
  template <class F> __device__ void each_four(const float* source, std::int64_t count,
                                               std::int64_t width, const RowFactors& factors,
                                               const F& f) {
    const int rows = static_cast<int>(count), columns = static_cast<int>(width);
    const bool whole = columns % 4 == 0 && Four<float>::aligned(source);
#pragma unroll(kWidth > 64 || sizeof(Number) > 2 ? 2 : 4)
    for (int e = threadIdx.x; e < kTile * kQuads; e += kThreads) {
      const int row = e / kQuads, c = 4 * (e % kQuads);
      const float* const from = source + row * columns + c;
      Four<float> four{};
      if (row < rows && c < columns) {
        if (whole) {
          four = Four<float>::at(from);
        } else {
          for (int i = 0; i < 4 && c + i < columns; ++i) four.x[i] = from[i];
        }
      }
      const float factor = row < rows ? factors.of(row) : 0.0f;
      Four<Number> numbers;
      float square = 0;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        numbers.x[i] = Core::rounded(four.x[i] * factor);
        square += Core::value(numbers.x[i]) * Core::value(numbers.x[i]);
      }
      numbers.store(&n[row * kStride + c]);
      f(e, square);
    }
  }
};

/// x and u, or w and y, of a tile's rows.
template <class Core, int kD, int kP> struct Side {
  Tile<Core, kD> first;
  Tile<Core, kP> second;
  float term[kTile];  // of the exponent, base 2
};
template <class Core, int kD, int kP> struct Shared { Side<Core, kD, kP> rows, landmarks; };

/// The sums of a side's own rows, in a lane's registers.
template <int kD, int kP> struct Totals {
  Accumulator d[kD / 8];       // E first
  Accumulator values[kP / 8];  // C second
  float sums[2] = {};          // E 1, this lane's part
};

/// Weights as a fragment A.
template <class Core>
__device__ typename Core::FragmentA as_fragment_a(const Accumulator (&weights)[2],
                                                  float (&sums)[2]) {
  const typename Core::FragmentA a = Core::rounded_a(weights);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[half] += Core::entry(a, half, i);
  }
  return a;
}

/// Adds what the first `count` rows of the other side give to own rows. The sums of E are those of
/// its rounded entries: then E w - row_sum(E) x is a sum of E_ij (w_j - x_i), small where these
/// are. kShift: values are those of C + shift.
template <bool kGradient, bool kValues, bool kShift = false, class Core, int kD, int kP>
__device__ void walk(const WarpRows& at, const Side<Core, kD, kP>& own,
                     const Side<Core, kD, kP>& other, int count, Totals<kD, kP>& totals,
                     float shift = 0) {
  typename Core::FragmentA first[kD / kMmaK], second[kP / kMmaK];
  own.first.own_rows(at, first);
  if constexpr (kGradient) own.second.own_rows(at, second);
  const float term[2] = {own.term[at.row_of(0)], own.term[at.row_of(1)]};
#pragma unroll 1
  for (int from = 0; from < count; from += kMmaK) {
    Accumulator c[2], e[2];  // this lane's part of C and E
    other.first.scores(first, from, c);
    if constexpr (kGradient) other.second.scores(second, from, e);
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const float* const column = other.term + from + 8 * n + 2 * at.t;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& weight = c[n].x[i / 2][i % 2];
        weight = cuda::ptx::exp2(kLog2E * weight + (term[i / 2] + column[i % 2]));
        if constexpr (kGradient) e[n].x[i / 2][i % 2] *= weight;
        if constexpr (kShift) weight += shift;
      }
    }
    if constexpr (kGradient) {
      other.first.add_weighted(as_fragment_a<Core>(e, totals.sums), from, totals.d);
    }
    if constexpr (kValues) {
      float ignored[2] = {};
      other.second.add_weighted(as_fragment_a<Core>(c, ignored), from, totals.values);
    }
  }
}

/// d -= sums times own rows: what the Gaussian's norms add to a gradient.
template <class Core, int kD, int kP> __device__ void subtract_own(const WarpRows& at,
                                                                   const Tile<Core, kD>& own,
                                                                   Totals<kD, kP>& totals) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float sum = over_row(totals.sums[half]);
#pragma unroll
    for (int c = 0; c < kD / 8; ++c) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        totals.d[c].x[half][e] -= sum * own.at(at.row_of(half), 8 * c + 2 * at.t + e);
      }
    }
  }
}

/// Own rows times their factors to target [count, width]: two columns at a time where all rows
/// begin at pairs.
template <int kOuts> __device__ void store(const WarpRows& at, const Accumulator (&total)[kOuts],
                                           const RowFactors& factors, float* target, int count,
                                           std::int64_t width) {
  struct alignas(8) Two {
    float x[2];
  };
  const bool pairs = width % 2 == 0 && reinterpret_cast<std::uintptr_t>(target) % sizeof(Two) == 0;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = at.row_of(half);
    if (row >= count) continue;
    const float factor = factors.of(row);
    float* const to = target + row * width + 2 * at.t;
    const int left = static_cast<int>(width) - 2 * at.t;  // columns from there on
#pragma unroll
    for (int c = 0; c < kOuts; ++c) {
      const Two two{{factor * total[c].x[half][0], factor * total[c].x[half][1]}};
      if (pairs) {
        if (8 * c < left) *reinterpret_cast<Two*>(to + 8 * c) = two;
      } else {
        if (8 * c < left) to[8 * c] = two.x[0];
        if (8 * c + 1 < left) to[8 * c + 1] = two.x[1];
      }
    }
  }
}

/// The totals of own rows, times the factors, to d [.., D] and values [.., P], from row `first` of
/// these on.
template <bool kGradient, bool kValues, class Core, int kD, int kP>
__device__ void finish(const WarpRows& at, const Tile<Core, kD>& own, const Sizes& s,
                       Totals<kD, kP>& totals, float* d, float* values, std::int64_t first,
                       int count, const RowFactors& of_d = {}, const RowFactors& of_values = {}) {
  if constexpr (kGradient) {
    if (s.gaussian) subtract_own(at, own, totals);
    store(at, totals.d, of_d, d + first * s.width, count, s.width);
  }
  if constexpr (kValues) {
    store(at, totals.values, of_values, values + first * s.factor, count, s.factor);
  }
}

}  // namespace skytape::attention::kernel_cuda
