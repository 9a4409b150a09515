// Products of small matrices on tensor cores at bf16's rate with twice its bits ("bf16x3"), CUDA
// only.
//
// An entry is a sum of two bf16 numbers, x = high + low, but for 2^-18 of it. A matrix in shared
// memory is split once, into a plane of each, and a product adds up low high + high high + high low
// in f32 accumulators. What is left out is at most 3 2^-18 of a term, 1.1e-5; f32 products have
// 6e-8 ("3xTF32", square_product.hpp, 7e-7 at twice the time of the tensor cores, and splits
// operands as often as they are read). Either operand may be transposed: `ldmatrix` does it. Of
// infinity, low is NaN.
//
// A block's threads hold a result in registers, so it may replace an operand. Square matrices have
// kSize rows and columns, others kSize rows; zeros beyond the real ones.
#pragma once

#include <cuda_pipeline.h>

#include <bit>
#include <cstdint>

#include "tensor/gemm/gemm.hpp"
#include "tensor/gemm/tensor_core.hpp"
#include "tensor/launch/four.hpp"

namespace skytape::attention::planes {

using Core = cuda::TensorCore<Precision::bf16>;
using Number = Core::Number;
using cuda::Accumulator;

__device__ __forceinline__ int warp() { return threadIdx.x / cuda::kWarp; }

/// The split of a result [kSize, kSize] among a block's warps: two rows of them, each warp with
/// tiles [16, 8].
template <int kRows> struct Layout {
  static constexpr int kSize = kRows;
  static constexpr int kRowTiles = kSize / 32, kColumnTiles = kSize <= 64 ? 2 : 4;  // of a warp
  static constexpr int kWarps = kSize / (4 * kColumnTiles), kThreads = kWarps * cuda::kWarp;
  __device__ static int row() { return warp() % 2 * (kSize / 2); }  // first of the warp
  __device__ static int column() { return warp() / 2 * 8 * kColumnTiles; }
};

/// The same of a result [L::kSize, kWidth]: 16 rows a warp.
template <class L, int kWidth> struct Tall {
  static constexpr int kRowTiles = 1, kColumnTiles = kWidth / 8, kThreads = L::kThreads;
  __device__ static bool has_part() { return warp() < L::kSize / 16; }
  __device__ static int row() { return 16 * warp(); }
  __device__ static int column() { return 0; }
};

/// In shared memory.
template <int kRowCount, int kColumnCount> struct alignas(16) Matrix {
  static constexpr int kRows = kRowCount, kColumns = kColumnCount;
  static constexpr int kStride =
      kColumns + 8;  // of a plane's row: eight rows then touch every bank
  static constexpr int kPlane = kRows * kStride;
  Number planes[2 * kPlane];

  __device__ const Number* high() const { return planes; }
  __device__ const Number* low() const { return planes + kPlane; }
  __device__ float at(int row, int column) const {
    const auto wide = [](Number n) { return std::bit_cast<float>(std::uint32_t{n} << 16); };
    return wide(high()[row * kStride + column]) + wide(low()[row * kStride + column]);
  }
};
template <class L> using Square = Matrix<L::kSize, L::kSize>;

/// A copy of a square matrix in device memory: both planes, rows without gaps.
template <class L> constexpr int kImage = 2 * L::kSize* L::kSize;  // numbers

/// Two neighbouring entries.
struct Split {
  std::uint32_t high, low;
};
__device__ __forceinline__ Split split(float first, float second) {
  const std::uint32_t high = cuda::ptx::round_two_bf16(first, second);
  return {high, cuda::ptx::round_two_bf16(first - std::bit_cast<float>(high << 16),
                                          second - std::bit_cast<float>(high & 0xffff0000u))};
}

struct Nothing {
  __device__ void operator()(int) const {}
};

/// A thread's part of a result that the warps share as S says: f32 accumulators, zeros at first.
template <class S> struct Result {
  Accumulator tiles[S::kRowTiles][S::kColumnTiles];

  /// += op(a) op(b). All operands must be there: sync() before. beside(i) is called once for each
  /// 16 of the inner size: what copies then, copies while tensor cores work.
  template <Op kOpA, Op kOpB, class A, class B, class F = Nothing>
  __device__ __forceinline__ void add(const A& a, const B& b, const F& beside = {});

  /// f(row, column, x) for the entries x[0] at (row, column) and x[1] at (row, column + 1).
  template <class F> __device__ __forceinline__ void each_two(const F& f);
  /// f(row, column, x) for each entry.
  template <class F> __device__ __forceinline__ void each(const F& f) {
    each_two([&](int row, int column, float(&x)[2]) {
      f(row, column, x[0]);
      f(row, column + 1, x[1]);
    });
  }

  /// c = scale c + shift I.
  __device__ __forceinline__ void affine(float scale, float shift = 0) {
    each([&](int row, int column, float& x) { x = scale * x + (row == column ? shift : 0.0f); });
  }
  /// c += factor other.
  __device__ __forceinline__ void add_scaled(const Result& other, float factor) {
    for_tiles([&](int r, int c, int) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        tiles[r][c].x[e / 2][e % 2] += factor * other.tiles[r][c].x[e / 2][e % 2];
      }
    });
  }

  /// To shared memory, split. Nobody may still read there: a barrier before, if it is an operand.
  template <class M> __device__ __forceinline__ void store(M& to) {
    each_two([&](int row, int column, float(&x)[2]) {
      const Split two = split(x[0], x[1]);
      Number* const at = to.planes + row * M::kStride + column;
      store_two(two.high, at);
      store_two(two.low, at + M::kPlane);
    });
  }
  template <class M> __device__ __forceinline__ void store_transposed(M& to) {
    each_two([&](int row, int column, float(&x)[2]) {
      const Split two = split(x[0], x[1]);
      Number* const at = to.planes + column * M::kStride + row;
      at[0] = static_cast<Number>(two.high);
      at[M::kStride] = static_cast<Number>(two.high >> 16);
      at[M::kPlane] = static_cast<Number>(two.low);
      at[M::kPlane + M::kStride] = static_cast<Number>(two.low >> 16);
    });
  }
  /// The real entries to a matrix [rows, columns] in device memory.
  __device__ __forceinline__ void store(float* to, int rows, int columns) {
    const bool whole = columns % 2 == 0;  // then addresses allow pairs
    each_two([&](int row, int column, float(&x)[2]) {
      if (row >= rows || column >= columns) return;
      float* const at = to + row * columns + column;
      if (whole) {
        *reinterpret_cast<Two<float>*>(at) = {{x[0], x[1]}};
      } else {
        at[0] = x[0];
        if (column + 1 < columns) at[1] = x[1];
      }
    });
  }

  /// To and from as many numbers in device memory, for the same threads.
  __device__ __forceinline__ void put_aside(float* to) const {
    for_tiles([&](int r, int c, int at) {
      const Accumulator& own = tiles[r][c];
      cuda::Four<float>{{own.x[0][0], own.x[0][1], own.x[1][0], own.x[1][1]}}.store(to + at);
    });
  }
  __device__ __forceinline__ void take_back(const float* from) {
    for_tiles([&](int r, int c, int at) {
      const auto four = cuda::Four<float>::at(from + at);
      tiles[r][c] = {{{four.x[0], four.x[1]}, {four.x[2], four.x[3]}}};
    });
  }

 private:
  template <class T> struct alignas(2 * sizeof(T)) Two { T x[2]; };

  __device__ __forceinline__ static void store_two(std::uint32_t two, Number* to) {
    *reinterpret_cast<Two<Number>*>(to) = std::bit_cast<Two<Number>>(two);
  }
  template <class F> __device__ __forceinline__ static void for_tiles(const F& f) {
#pragma unroll
    for (int r = 0; r < S::kRowTiles; ++r) {
#pragma unroll
      for (int c = 0; c < S::kColumnTiles; ++c) {
        f(r, c, 4 * ((r * S::kColumnTiles + c) * S::kThreads + static_cast<int>(threadIdx.x)));
      }
    }
  }
};

template <class S> template <Op kOpA, Op kOpB, class A, class B, class F>
__device__ __forceinline__ void Result<S>::add(const A& a, const B& b, const F& beside) {
  constexpr int kInner = kOpA == Op::none ? A::kColumns : A::kRows;
  static_assert(kInner == (kOpB == Op::none ? B::kRows : B::kColumns));
  using FragmentsA = Core::FragmentA[S::kRowTiles];
  using FragmentsB = Core::FragmentB[S::kColumnTiles / 2][2];
  const auto load_a = [&](const Number* plane, int k, FragmentsA& to) {
#pragma unroll
    for (int r = 0; r < S::kRowTiles; ++r) {
      const int row = S::row() + 16 * r;
      to[r] = kOpA == Op::none ? Core::ldmatrix_a(plane + row * A::kStride + k, A::kStride)
                               : Core::ldmatrix_a_trans(plane + k * A::kStride + row, A::kStride);
    }
  };
  const auto load_b = [&](const Number* plane, int k, FragmentsB& to) {
#pragma unroll
    for (int c = 0; c < S::kColumnTiles / 2; ++c) {
      const int column = S::column() + 16 * c;
      if constexpr (kOpB == Op::none) {
        Core::ldmatrix_b_trans(plane + k * B::kStride + column, B::kStride, to[c]);
      } else {
        Core::ldmatrix_b(plane + column * B::kStride + k, B::kStride, to[c]);
      }
    }
  };
  // Each instruction waits for the last one with its accumulators: all others come between.
  const auto multiply = [&](const FragmentsA& x, const FragmentsB& y) {
    for_tiles([&](int r, int c, int) { Core::mma(tiles[r][c], x[r], y[c / 2][c % 2]); });
  };
  // Fragments are loaded a third of a turn or two ahead of their first use, into the registers of
  // those whose last use is over. Measured on an H100, with copies parallel to products: the middle
  // of 64 matrices of 128 rows forward 141 and 125 us, backward 242 and 236; two warps on a
  // scheduler had hidden most of it.
  FragmentsA a_low, a_high;
  FragmentsB b_low, b_high;
  load_b(b.high(), 0, b_high);
  load_a(a.low(), 0, a_low);
#pragma unroll 1
  for (int k = 0; k < kInner; k += 16) {
    asm volatile("" : "+r"(k));  // ptxas would unroll what it can count, and spill
    const int next = k + 16 < kInner ? k + 16 : 0;  // the last turn's loads are for nothing
    load_a(a.high(), k, a_high);
    load_b(b.low(), k, b_low);
    multiply(a_low, b_high);
    load_a(a.low(), next, a_low);
    beside(k / 16);
    multiply(a_high, b_high);
    load_b(b.high(), next, b_high);
    multiply(a_high, b_low);
  }
}

template <class S> template <class F>
__device__ __forceinline__ void Result<S>::each_two(const F& f) {
  const cuda::LaneMap lane;
  const int row = S::row() + lane.g, column = S::column() + 2 * lane.t;
#pragma unroll
  for (int r = 0; r < S::kRowTiles; ++r) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int c = 0; c < S::kColumnTiles; ++c) {
        f(row + 16 * r + 8 * half, column + 8 * c, tiles[r][c].x[half]);
      }
    }
  }
}

/// Waits for what the block's threads stored in shared memory or began to copy there; what they
/// read may be overwritten.
__device__ __forceinline__ void sync() {
  __pipeline_wait_prior(0);
  __syncthreads();
}

/// f(row, x) of the entries x of a matrix [rows, columns] of f32, zeros beyond it, to shared
/// memory.
template <class L, class M, class F>
__device__ __forceinline__ void load(const float* from, int rows, int columns, M& to, const F& f) {
  struct Words {
    std::uint32_t x[2];
  };
  constexpr int kFours = M::kColumns / 4;  // of a row
#pragma unroll 4
  for (int e = threadIdx.x; e < M::kRows * kFours; e += L::kThreads) {
    const int row = e / kFours, c = e % kFours * 4;
    cuda::Four<float> four = cuda::load_four(from, row, rows, columns, c);
#pragma unroll
    for (float& x : four.x) x = f(row, x);
    const Split first = split(four.x[0], four.x[1]), second = split(four.x[2], four.x[3]);
    Number* const at = to.planes + row * M::kStride + c;
    std::bit_cast<cuda::Four<Number>>(Words{{first.high, second.high}}).store(at);
    std::bit_cast<cuda::Four<Number>>(Words{{first.low, second.low}}).store(at + M::kPlane);
  }
}

/// f(at, from): the eight numbers at planes + at are those at image + from. Of kParts parts of them
/// those of one, or all.
template <class L, int kParts = 1, class F>
__device__ __forceinline__ void for_eights(const F& f, int part = 0) {
  constexpr int kEights = L::kSize / 8, kRows = L::kThreads / kEights;  // of a row; at a time
  constexpr int kTimes = 2 * L::kSize / kRows / kParts;
  static_assert(kTimes * kRows * kParts == 2 * L::kSize);
  const int at = (threadIdx.x / kEights + part * kTimes * kRows) * Square<L>::kStride +
                 threadIdx.x % kEights * 8;
  const int from = (part * kTimes * L::kThreads + threadIdx.x) * 8;
#pragma unroll
  for (int i = 0; i < kTimes; ++i) {
    f(at + i * kRows * Square<L>::kStride, from + i * L::kThreads * 8);
  }
}

struct alignas(16) Eight {
  Number x[8];
};
/// Copies a matrix to its image, or one of kParts parts of it.
template <class L, int kParts = 1>
__device__ __forceinline__ void keep(const Square<L>& from, Number* image, int part = 0) {
  for_eights<L, kParts>(
      [&](int at, int to) {
        *reinterpret_cast<Eight*>(image + to) = *reinterpret_cast<const Eight*>(from.planes + at);
      },
      part);
}
/// The same in parallel with a product of square matrices (Result::add).
template <class L> struct Keep {
  const Square<L>& from;
  Number* image;
  __device__ void operator()(int i) const { keep<L, L::kSize / 16>(from, image, i); }
};

/// Begins to copy an image, or one of kParts parts of it, to shared memory; it is there after
/// sync().
template <class L, int kParts = 1>
__device__ __forceinline__ void begin_load(const Number* image, Square<L>& to, int part = 0) {
  for_eights<L, kParts>(
      [&](int at, int from) { __pipeline_memcpy_async(to.planes + at, image + from, 16); }, part);
  __pipeline_commit();
}
/// The same in parallel with the first half of a product of square matrices (Result::add).
template <class L> struct Load {
  const Number* image;
  Square<L>& to;
  __device__ void operator()(int i) const {
    if (i < L::kSize / 32) begin_load<L, L::kSize / 32>(image, to, i);
  }
};

}  // namespace skytape::attention::planes
