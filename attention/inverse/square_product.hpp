// Products of square matrices in a block's shared memory, CUDA only. The block's threads hold the
// result in registers, so it may replace an operand.
//
// Matrices have kSize rows and columns, zeros beyond the real ones; kSize is a power of two from 32
// on. A block has two rows of warps; a warp owns half of the block's rows of the result and 32 of
// its columns, in tiles [16, 8] whose entries lie with the lanes by the lane map of
// tensor_core.hpp.
//
// Two blocks (a cluster) may work on a matrix together. Each then forms half of a result's rows and
// stores them in its own shared memory and the other's, so that the next product finds all of them.
//
// A lane may take any inner indices in an instruction, as long as both operands agree; they are
// k + 8 t + i here, i < 8. With rows an odd number of entries apart, the 32 lanes then read 32
// banks of shared memory, whether they walk along rows or columns: no operand is ever transposed.
//
// Two ways to multiply, both f32 (u = 2^-24, n inner indices):
//   PlainProduct  fused multiply-adds, one after the other:    |C - A B| <= n u |A| |B|
//   SplitProduct  tensor cores. Each operand is a sum of two tf32 numbers, high + low, and
//                 low high + high low + high high is added up: "3xTF32" (Ootomo and Yokota,
//                 "Recovering single precision accuracy from Tensor Cores", 2022). What is left
//                 out is 12 u of a term. Tensor cores cut sums off instead of rounding them, so
//                 only 16 inner indices are summed there, and the rest by rounded additions:
//                                                     |C - A B| <= (n / 16 + 48) u |A| |B|
// An operand that is not finite gives results that are not: the low part of infinity is NaN.
#pragma once

#include <cuda_pipeline.h>

#include <bit>

#include "tensor/gemm/gemm.hpp"
#include "tensor/gemm/tensor_core.hpp"
#include "tensor/launch/cluster.hpp"

namespace skytape::attention::square {

using cuda::Accumulator;

/// The split of matrices [kRows, kRows] among the blocks that work on one together: each block has
/// all entries of the operands in its shared memory, and forms a share of the result's rows.
template <int kRows, int kTogether> struct Layout {
  static constexpr int kSize = kRows, kBlocks = kTogether;
  static constexpr int kWarps = kSize / 16, kThreads = kWarps * cuda::kWarp;  // of a block
  static constexpr int kShare = kSize / kBlocks;                              // rows
  static constexpr int kRowTiles = kShare / 32, kColumnTiles = 4;             // of a warp
  /// Entries between rows in shared memory: odd, and lanes that store tiles meet at most in pairs.
  static constexpr int kStride = kSize + 9;
  static constexpr int kEntries = kSize * kStride;
  static_assert(kBlocks <= 2 && kShare % 32 == 0 && (kSize & (kSize - 1)) == 0 && kStride % 2 == 1);
};

/// Waits for all threads that work on the block's matrix.
template <class L> __device__ __forceinline__ void sync() {
  if constexpr (L::kBlocks == 1) {
    __syncthreads();
  } else {
    cuda::cluster_barrier();
  }
}

/// The warp's part of a result, and the lane's in it.
template <class L> struct WarpTile : cuda::LaneMap {
  int row, column;  // first of the warp
  __device__ WarpTile()
      : row(blockIdx.x % L::kBlocks * L::kShare + threadIdx.x / cuda::kWarp % 2 * (L::kShare / 2)),
        column(threadIdx.x / cuda::kWarp / 2 * 32) {}
};

/// A thread's entries of a result; zeros at first.
template <class L> struct Own {
  Accumulator tiles[L::kRowTiles][L::kColumnTiles];

  /// f(row, column, x) for its entries x[0], x[1] at (row, column) and (row, column + 1).
  template <class F> __device__ __forceinline__ void each(const F& f) {
    const WarpTile<L> at;
#pragma unroll
    for (int r = 0; r < L::kRowTiles; ++r) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int c = 0; c < L::kColumnTiles; ++c) {
          f(at.row + 16 * r + 8 * half + at.g, at.column + 8 * c + 2 * at.t, tiles[r][c].x[half]);
        }
      }
    }
  }
};

/// op(a)[row, column] of a matrix in shared memory.
template <class L, Op kOp>
__device__ __forceinline__ float entry(const float* a, int row, int column) {
  constexpr int kStride = L::kStride;
  return kOp == Op::none ? a[row * kStride + column] : a[column * kStride + row];
}

/// Fused multiply-adds.
struct PlainProduct {
  static constexpr bool kOnTensorCores = false;

  /// c += op(a) op(b).
  template <Op kOpA, Op kOpB, class L>
  __device__ __forceinline__ static void add(const float* a, const float* b, Own<L>& c) {
    constexpr int kRows = 2 * L::kRowTiles;  // of a thread
    constexpr int kColumnTiles = L::kColumnTiles;
    const WarpTile<L> at;
#pragma unroll 1
    for (int k = 0; k < L::kSize; ++k) {
      float left[kRows], right[kColumnTiles][2];
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        left[r] = entry<L, kOpA>(a, at.row + 8 * r + at.g, k);
      }
#pragma unroll
      for (int e = 0; e < 2 * kColumnTiles; ++e) {
        right[e / 2][e % 2] = entry<L, kOpB>(b, k, at.column + e / 2 * 8 + 2 * at.t + e % 2);
      }
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
#pragma unroll
        for (int e = 0; e < 2 * kColumnTiles; ++e) {
          c.tiles[r / 2][e / 2].x[r % 2][e % 2] += left[r] * right[e / 2][e % 2];
        }
      }
    }
  }
};

/// Three products of tf32 numbers on tensor cores.
struct SplitProduct {
  static constexpr bool kOnTensorCores = true;
  using Core = cuda::TensorCore<Precision::tf32>;

  /// x = high + low, but for a unit in x's last place. high is the nearest number with tf32's bits,
  /// low the difference with those bits alone. Of infinity and NaN, low is NaN. As integers: the
  /// instruction that rounds to tf32 becomes four on sm_90, and most of a product's were these.
  __device__ __forceinline__ static void split(float x, Core::Number& high, Core::Number& low) {
    constexpr std::uint32_t kHalf = 0x1000, kBits = 0xffffe000;
    high = (std::bit_cast<std::uint32_t>(x) + kHalf) & kBits;
    low = std::bit_cast<std::uint32_t>(x - std::bit_cast<float>(high)) & kBits;
  }

  /// c += op(a) op(b).
  template <Op kOpA, Op kOpB, class L>
  __device__ __forceinline__ static void add(const float* a, const float* b, Own<L>& c) {
    constexpr int kColumnTiles = L::kColumnTiles;
    const WarpTile<L> at;
#pragma unroll 1
    for (int k = 0; k < L::kSize; k += 32) {
#pragma unroll 1
      for (int first = 0; first < 8; first += 4) {
        const int inner = k + 8 * at.t + first;  // and the next three
        Core::FragmentB high[kColumnTiles], low[kColumnTiles];
#pragma unroll
        for (int j = 0; j < kColumnTiles; ++j) {
          Core::Number h[4], l[4];
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            split(entry<L, kOpB>(b, inner + i, at.column + 8 * j + at.g), h[i], l[i]);
          }
          high[j] = Core::fragment_b(h[0], h[1], h[2], h[3]);
          low[j] = Core::fragment_b(l[0], l[1], l[2], l[3]);
        }
#pragma unroll
        for (int r = 0; r < L::kRowTiles; ++r) {
          add_rows<kOpA>(a, at, at.row + 16 * r, inner, high, low, c.tiles[r]);
        }
      }
    }
  }

 private:
  /// The 16 rows from `row` on, and a lane's four inner indices from `inner` on.
  template <Op kOpA, class L, int kTiles>
  __device__ __forceinline__ static void add_rows(const float* a, const WarpTile<L>& at, int row,
                                                  int inner, const Core::FragmentB (&high)[kTiles],
                                                  const Core::FragmentB (&low)[kTiles],
                                                  Accumulator (&total)[kTiles]) {
    Core::Number h[2][4], l[2][4];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        split(entry<L, kOpA>(a, row + 8 * half + at.g, inner + i), h[half][i], l[half][i]);
      }
    }
    const Core::FragmentA a_high = Core::fragment_a(h), a_low = Core::fragment_a(l);
    Accumulator sums[kTiles];
#pragma unroll
    for (int j = 0; j < kTiles; ++j) Core::mma(sums[j], a_low, high[j]);
#pragma unroll
    for (int j = 0; j < kTiles; ++j) Core::mma(sums[j], a_high, low[j]);
#pragma unroll
    for (int j = 0; j < kTiles; ++j) Core::mma(sums[j], a_high, high[j]);
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) total[j].x[e / 2][e % 2] += sums[j].x[e / 2][e % 2];
    }
  }
};

/// The use of a product: c = scale op(a) op(b) + factor `added` + `sum` + shift I.
struct Into {
  float scale = 1, shift = 0;
  float* shared = nullptr;       // stored there, if anywhere; may be an operand
  float* memory = nullptr;       // and there, a matrix [L, L] in device memory
  const float* sum = nullptr;    // in device memory, what the same call stored earlier
  const float* added = nullptr;  // in shared memory; may be an operand
  float factor = 0;
};

struct alignas(8) Pair {
  float first, second;
};

// A thread's real entries of a matrix [L, L]: added, or stored. In pairs where addresses allow.
template <class L>
__device__ __forceinline__ void add_from_memory(const float* from, int size, Own<L>& c) {
  const bool pairs = size % 2 == 0;
  c.each([&](int row, int column, float(&x)[2]) {
    if (row >= size || column >= size) return;
    const float* const at = from + row * size + column;
    if (pairs) {
      const Pair pair = *reinterpret_cast<const Pair*>(at);
      x[0] += pair.first;
      x[1] += pair.second;
    } else {
      x[0] += at[0];
      if (column + 1 < size) x[1] += at[1];
    }
  });
}
template <class L> __device__ __forceinline__ void to_memory(Own<L>& c, int size, float* to) {
  const bool pairs = size % 2 == 0;
  c.each([&](int row, int column, float(&x)[2]) {
    if (row >= size || column >= size) return;
    float* const at = to + row * size + column;
    if (pairs) {
      *reinterpret_cast<Pair*>(at) = {x[0], x[1]};
    } else {
      at[0] = x[0];
      if (column + 1 < size) at[1] = x[1];
    }
  });
}

/// One product; L = size. Waits for what is being loaded or stored in shared memory; when it comes
/// back, operands may be overwritten, and the next call waits for what this one stores. A function
/// of its own: an inverse has a dozen calls, which inlined would fill the instruction cache.
template <Op kOpA, Op kOpB, class Product, class L>
__device__ __attribute__((noinline)) void multiply(const float* a, const float* b, int size,
                                                   Into into) {
  constexpr int kStride = L::kStride;
  __pipeline_wait_prior(0);
  sync<L>();
  Own<L> c;
  Product::template add<kOpA, kOpB>(a, b, c);
  sync<L>();
  c.each([&](int row, int column, float(&x)[2]) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      x[e] *= into.scale;
      if (row == column + e && row < size) x[e] += into.shift;
      if (into.added != nullptr) x[e] += into.factor * into.added[row * kStride + column + e];
    }
  });
  if (into.sum != nullptr) add_from_memory(into.sum, size, c);
  if (into.memory != nullptr) to_memory(c, size, into.memory);
  if (into.shared == nullptr) return;
  const auto store = [&](float* shared) {
    c.each([&](int row, int column, float(&x)[2]) {
      shared[row * kStride + column] = x[0];
      shared[row * kStride + column + 1] = x[1];
    });
  };
  store(into.shared);
  if constexpr (L::kBlocks == 2) store(cuda::in_block(into.shared, 1 - blockIdx.x % 2));
}

/// Begins to copy a matrix [L, L] to shared memory, zeros beyond L. A thread has one column.
template <class L>
__device__ __attribute__((noinline)) void load(const float* from, int size, float* to) {
  constexpr int kRows = L::kThreads / L::kSize;  // at a time
  const int column = threadIdx.x % L::kSize, first = threadIdx.x / L::kSize;
  const int real_rows = column < size ? size : 0;
  from += first * size + column;
  to += first * L::kStride + column;
#pragma unroll 1
  for (int row = first; row < L::kSize; row += kRows) {
    if (row < real_rows) {
      __pipeline_memcpy_async(to, from, sizeof(float));
    } else {
      *to = 0;
    }
    from += kRows * size;
    to += kRows * L::kStride;
  }
  __pipeline_commit();
}

}  // namespace skytape::attention::square
