// Tokens times small matrices on tensor cores, CUDA only: what kernels share whose warp owns 16 tokens
// and whose block has all weights in shared memory (mlp.cu, token_products.cu). Products are bf16
// with f32 sums. Channels are padded with zeros to kWidth; in memory they are even in number.
#pragma once

#include <cstdint>

#include "tensor/gemm/tensor_core.hpp"
#include "tensor/random/philox.hpp"
#include "tensor/tokens/row_dropout.hpp"

namespace skytape::tensor::token_tiles {

using cuda::kWarp;
using cuda::Sums;
using Core = cuda::TensorCore<Precision::bf16>;
using Number = Core::Number;

constexpr int kWidth = 64;  // channels
constexpr int kWarps = 8, kThreads = kWarps * kWarp;
constexpr int kRows = 16;                // tokens of a warp
constexpr int kTokens = kWarps * kRows;  // of a block at a time
constexpr int kStep = 16;                // inner index of a product
constexpr unsigned kAllLanes = 0xffffffffu;

/// Of rows of kWidth in shared memory: eight rows then touch every bank.
constexpr int kStride = kWidth + 8;

/// Tokens whose parts of the parameters' gradients are added up by one block: fixed, so that no result
/// depends on a grid.
constexpr std::int64_t kChunkTokens = 512;
static_assert(kChunkTokens % kTokens == 0);

/// A lane's rows g, g + 8 and columns 2t, 2t + 1 of its warp's 16 tokens, from `first` on.
struct Place {
  int g, t, warp;
  __device__ Place() : g(threadIdx.x % kWarp / 4), t(threadIdx.x % 4), warp(threadIdx.x / kWarp) {}
  __device__ int token(int half) const { return kRows * warp + g + 8 * half; }  // of the block
};

/// Two numbers side by side.
struct alignas(8) Pair {
  float x[2];
};

/// Rows of the warp in memory, [rows, width], width even; zeros beyond the last one and beyond the
/// width.
template <class T> struct Rows {
  T* row[2];  // null: beyond the last
  int width;
  __device__ Rows(T* all, std::int64_t rows, int row_width, std::int64_t first, const Place& at)
      : width(row_width) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::int64_t r = first + at.token(half);
      row[half] = r < rows ? all + r * width : nullptr;
    }
  }
  __device__ bool has(int half, int column) const { return row[half] != nullptr && column < width; }
  __device__ Pair load(int half, int column) const {
    return has(half, column) ? *reinterpret_cast<const Pair*>(row[half] + column) : Pair{};
  }
  __device__ void store(int half, int column, const Pair& pair) const {
    if (has(half, column)) *reinterpret_cast<Pair*>(row[half] + column) = pair;
  }
};

/// What dropout keeps of a lane's two rows: bit 2c + e of a row's bits for column 8c + 2t + e.
class Keep {
 public:
  __device__ Keep(const RowDropout& dropout, std::int64_t first, const Place& at)
      : scale_(dropout.scale) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      bits_[half] = drawn(dropout, dropout.number(first + at.token(half)), at.t);
    }
  }
  __device__ float factor(int half, int tile, int e) const {
    return (bits_[half] >> (2 * tile + e) & 1u) != 0 ? scale_ : 0.0f;
  }

 private:
  // Half h of word k of counter j decides about column 16 (2k + h) + j of a chunk (philox.hpp). A
  // lane has the columns j = 2t, 2t + 1, 2t + 8, 2t + 9 of each run of 16.
  __device__ static std::uint32_t drawn(const RowDropout& d, std::int64_t row, int t) {
    if (d.threshold == 0) return kAllLanes;
    const std::int64_t element = row * d.width, chunk = element / philox::kChunk;
    const std::uint64_t step = philox::step_of(d.step);
    std::uint32_t bits = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int j = 2 * t + i % 2 + i / 2 * 8;
      const philox::Words words =
          philox::draw(d.key, static_cast<std::uint64_t>(chunk * philox::kLanes + j), step);
#pragma unroll
      for (int run = 0; run < philox::kChunk / philox::kLanes; ++run) {
        const std::uint32_t number = (words.w[run / 2] >> (16 * (run % 2))) & 0xffffu;
        bits |= (number >= d.threshold ? 1u : 0u) << (4 * run + i);
      }
    }
    const auto first_run = static_cast<int>(element % philox::kChunk) / philox::kLanes;
    return bits >> (4 * first_run);
  }

  std::uint32_t bits_[2];
  float scale_;
};

/// Two product results side by side as a left operand: their 16 columns become the inner index.
struct Packed {
  Number n[2][4];  // rounded: [row half, column 2t, 2t + 1, 2t + 8, 2t + 9]
  __device__ explicit Packed(const Sums (&two)[2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int i = 0; i < 4; ++i) n[half][i] = Core::rounded(two[i / 2].x[half][i % 2]);
    }
  }
  [[nodiscard]] __device__ Core::Left left() const { return Core::left(n); }
  /// To the lane's rows of a tile, [tokens, kStride], from `column` on.
  __device__ void store(Number* tile, const Place& at, int column) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      Number* const to = tile + at.token(half) * kStride + column + 2 * at.t;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        *reinterpret_cast<std::uint32_t*>(to + 8 * i) =
            Core::pair(n[half][2 * i], n[half][2 * i + 1]);
      }
    }
  }
};

/// sums[0] and sums[1], columns 0 and 8 on, += left times 16 rows of shared memory.
__device__ inline void add_rows(const Core::Left& left, const Number* corner, int stride,
                                Sums* sums) {
  Core::Right two[2];
  Core::two_rights_by_rows(corner, stride, two);
  Core::multiply_add(sums[0], left, two[0]);
  Core::multiply_add(sums[1], left, two[1]);
}
/// The same with the transposed 16 rows.
__device__ inline void add_columns(const Core::Left& left, const Number* corner, int stride,
                                   Sums* sums) {
  Core::Right two[2];
  Core::two_rights_by_columns(corner, stride, two);
  Core::multiply_add(sums[0], left, two[0]);
  Core::multiply_add(sums[1], left, two[1]);
}

/// Adds up kCount values of each of the eight lanes g that share t, and leaves every lane with
/// kCount / 8 of them, or one if that is less: those from index kCount / 8 g on.
template <int kCount, int kOffset = kWarp / 2, int kAll>
__device__ __forceinline__ void share_sums(float (&v)[kAll]) {
  if constexpr (kCount == 1) {
    v[0] += __shfl_xor_sync(kAllLanes, v[0], kOffset);
  } else {
    const bool upper = (threadIdx.x & kOffset) != 0;
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) {
      const float low = v[i], high = v[i + kCount / 2];
      v[i] = (upper ? high : low) + __shfl_xor_sync(kAllLanes, upper ? low : high, kOffset);
    }
  }
  if constexpr (kOffset > 4) share_sums<(kCount + 1) / 2, kOffset / 2>(v);
}

/// Adds the columns of kWidth channels to the warp's line of sums.
__device__ inline void add_channel_sums(const Place& at, const Sums (&x)[kWidth / 8], float* line) {
  float v[kWidth / 4];
#pragma unroll
  for (int i = 0; i < kWidth / 4; ++i) v[i] = x[i / 2].x[0][i % 2] + x[i / 2].x[1][i % 2];
  share_sums<kWidth / 4>(v);
  line[8 * at.g + 2 * at.t] += v[0];
  line[8 * at.g + 2 * at.t + 1] += v[1];
}
static_assert(kWidth == 64);

/// y = x + drop(result + bias): a product's result leaves registers once.
__device__ inline void add_to_residual(const Place& at, const Sums (&result)[kWidth / 8],
                                       const float* bias, const Keep& keep,
                                       const Rows<const float>& x, const Rows<float>& y) {
#pragma unroll
  for (int c = 0; c < kWidth / 8; ++c) {
    const int column = 8 * c + 2 * at.t;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      Pair pair = x.load(half, column);
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        pair.x[e] += (result[c].x[half][e] + bias[column + e]) * keep.factor(half, c, e);
      }
      y.store(half, column, pair);
    }
  }
}

/// The lines of all warps, added in order.
template <int kMost>
__device__ void store_sums(const float (&lines)[kWarps][kMost], int width, float* to) {
  for (int i = threadIdx.x; i < width; i += kThreads) {
    float total = lines[0][i];
    for (int warp = 1; warp < kWarps; ++warp) total += lines[warp][i];
    to[i] = total;
  }
}

}  // namespace skytape::tensor::token_tiles
