// Tokens times small matrices on tensor cores, CUDA only: what kernels share whose warp owns 16
// tokens and whose block has all weights in shared memory (mlp.cu, token_products.cu). Products are
// bf16 with f32 sums. Channels are padded with zeros to kWidth; in memory their number is a
// multiple of 4.
//
// Rows and columns of products are numbered so that a lane's numbers are neighbours in memory. Rows
// g and g + 8 are tokens 2g and 2g + 1 of the warp's 16: the bits of one chunk often decide about
// both. Columns 2t, 2t + 1, 2t + 8, 2t + 9 of each 16 are channels 4t to 4t + 3: one access of 16
// bytes. So columns in registers and tiles are column_of(channel); in memory, and in arrays of f32
// in shared memory, channels have their own order.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tensor/core/tensor.hpp"
#include "tensor/gemm/tensor_core.hpp"
#include "tensor/launch/four.hpp"
#include "tensor/random/philox.hpp"
#include "tensor/tokens/prefetch.hpp"
#include "tensor/tokens/row_dropout.hpp"

namespace skytape::tensor::token_tiles {

using cuda::Accumulator;
using cuda::kMmaK;
using cuda::kWarp;
using Core = cuda::TensorCore<Precision::bf16>;
using Number = Core::Number;

constexpr int kWidth = 64;  // channels
constexpr int kWarps = 8, kThreads = kWarps * kWarp;
constexpr int kRows = 16;                // tokens of a warp
constexpr int kTokens = kWarps * kRows;  // of a block at a time
constexpr int kSteps = kWidth / kMmaK;

/// The stride of rows of kWidth in shared memory: eight rows then touch every bank.
constexpr int kStride = kWidth + 8;

/// Tokens whose parts of the parameters' gradients are added up by one block: at most 512, fewer
/// where 256 blocks, as many as a large GPU runs in parallel, two on a multiprocessor, would not
/// all have work. The number of tokens alone decides, so that no result depends on a grid. (A
/// simulated GPU has fewer blocks, and long chunks.)
inline std::int64_t chunk_tokens(std::int64_t rows) {
  const std::int64_t tiles = ceil_div(rows, kTokens);
  const std::int64_t at_once = cuda::grid_for(256, 1);
  return kTokens * std::min<std::int64_t>(ceil_div(tiles, at_once), 4);
}

/// Blocks of a kernel that walks tokens with weights it loads once: as many as a GPU runs at once,
/// two on a multiprocessor, and not more than each round needs.
inline unsigned grid_of(std::int64_t rows) {
  const std::int64_t tiles = ceil_div(rows, kTokens);
  const std::int64_t at_once = 2 * cuda::device_facts().multiprocessors;
  return cuda::grid_for(tiles, ceil_div(tiles, at_once));
}

/// Returns the column of a channel, or of a row of a weight, in products; and back.
__device__ constexpr int column_of(int channel) {
  return (channel & ~15) | (channel & 2) << 2 | (channel & 12) >> 1 | (channel & 1);
}
__device__ constexpr int channel_of(int column) {
  return (column & ~15) | (column & 6) << 1 | (column & 8) >> 2 | (column & 1);
}

/// A lane of its warp.
struct WarpTokens : cuda::LaneMap {
  int warp;
  // Below kWarps anyway, which saves the compiler a register where it knows it.
  __device__ WarpTokens() : warp(threadIdx.x / kWarp % kWarps) {}
  /// Returns, for one of the lane's two tokens, its number in the block, and its row in a tile.
  __device__ int token(int half) const { return kRows * warp + 2 * g + half; }
  __device__ int row(int half) const { return kRows * warp + g + 8 * half; }
};

/// A lane's four channels of 16, from 4t on.
using Quad = cuda::Four<float>;
/// The same in the layout of products: columns 8c + 2t + e are channels 4t + 2c + e.
__device__ __forceinline__ float& entry(Accumulator* two, int half, int i) {
  return two[i / 2].x[half][i % 2];
}
__device__ __forceinline__ float entry(const Accumulator* two, int half, int i) {
  return two[i / 2].x[half][i % 2];
}

/// A row in memory, [rows, width]; zeros beyond the last one and beyond the width.
template <class T> struct Row {
  T* from;    // channel 4t
  int steps;  // of 16 channels that the lane has a part in; 0 beyond the last row
  __device__ Row(T* all, std::int64_t rows, int width, std::int64_t row, const WarpTokens& at)
      : from(all + row * width + 4 * at.t),
        steps(row < rows ? ceil_div(width - 4 * at.t, kMmaK) : 0) {}
  __device__ bool has(int step) const { return step < steps; }
  __device__ Quad load(int step) const {
    return has(step) ? Quad::at(from + kMmaK * step) : Quad{};
  }
  __device__ void store(int step, const Quad& quad) const {
    if (has(step)) quad.store(from + kMmaK * step);
  }
};
/// The lane's two.
template <class T> struct Rows {
  Row<T> of[2];
  __device__ Rows(T* all, std::int64_t rows, int width, std::int64_t first, const WarpTokens& at)
      : of{{all, rows, width, first + at.token(0), at},
           {all, rows, width, first + at.token(1), at}} {}
  __device__ bool has(int half, int step) const { return of[half].has(step); }
  __device__ Quad load(int half, int step) const { return of[half].load(step); }
  __device__ void store(int half, int step, const Quad& quad) const { of[half].store(step, quad); }
};

/// The same in registers, read before they are needed.
struct HeldRows {
  Quad of[2][kSteps];
  __device__ explicit HeldRows(const Rows<const float>& rows) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int step = 0; step < kSteps; ++step) of[half][step] = rows.load(half, step);
    }
  }
  __device__ Quad load(int half, int step) const { return of[half][step]; }
};

/// Reads ahead the rows that a block needs next, if there are any.
__device__ inline void prefetch_rows(const float* all, std::int64_t rows, int width,
                                     std::int64_t first) {
  if (threadIdx.x != 0 || first >= rows) return;
  cuda::prefetch(all + first * width, math::min(rows - first, std::int64_t{kTokens}) * width);
}

/// Dropout's kept elements of a lane's two rows: bit 4s + i of a row's bits for channel 16s + 4t +
/// i.
class Keep {
 public:
  __device__ Keep(const RowDropout& dropout, std::int64_t first, const WarpTokens& at)
      : scale_(dropout.scale), bits_{~0u, ~0u} {
    if (dropout.threshold == 0) return;
    std::int64_t chunk = -1;
    std::uint32_t of_chunk = 0;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::int64_t element = dropout.number(first + at.token(half)) * dropout.width;
      if (element / philox::kChunk != chunk) {
        chunk = element / philox::kChunk;
        of_chunk = drawn(dropout, chunk, at.t);
      }
      bits_[half] = of_chunk >> first_bit(element);
    }
  }
  /// Takes bits that were drawn before.
  __device__ Keep(const RowDropout& dropout, std::uint32_t first, std::uint32_t second)
      : scale_(dropout.scale), bits_{first, second} {}

  __device__ std::uint32_t bits(int half) const { return bits_[half]; }
  /// Step 1 becomes step 0.
  __device__ void advance() {
    bits_[0] >>= 4;
    bits_[1] >>= 4;
  }
  __device__ float factor(int half, int step, int i) const {
    return (bits_[half] >> (4 * step + i) & 1u) != 0 ? scale_ : 0.0f;
  }

 private:
  /// Returns the first bit of a row that begins at that element.
  __device__ static int first_bit(std::int64_t element) {
    return static_cast<int>(element % philox::kChunk) / philox::kLanes * 4;
  }
  // Half h of word k of counter j decides about element 16 (2k + h) + j of a chunk (philox.hpp): a
  // lane has j from 4t to 4t + 3 of each run of 16.
  __device__ static std::uint32_t drawn(const RowDropout& d, std::int64_t chunk, int t) {
    const std::uint64_t step = philox::step_of(d.step);
    const std::uint32_t least = d.threshold << 16;
    std::uint32_t bits = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const philox::Words words =
          philox::draw(d.key, static_cast<std::uint64_t>(chunk * philox::kLanes + 4 * t + i), step);
#pragma unroll
      for (int k = 0; k < 4; ++k) {  // 16 bits compared where they are highest
        if (words.w[k] << 16 >= least) bits |= 1u << (8 * k + i);
        if (words.w[k] >= least) bits |= 1u << (8 * k + 4 + i);
      }
    }
    return bits;
  }

  float scale_;
  std::uint32_t bits_[2];
};

/// A weight [rows, columns], rows `stride` apart, to shared memory, rounded, both ways in the order
/// of products; zeros beyond.
template <int kMostRows, int kMostColumns>
__device__ void load_weight(const float* from, int rows, int columns, std::int64_t stride,
                            Number* to) {
  constexpr int kQuads = kMostColumns / 4, kAtOnce = kThreads / kQuads;
  const int c = threadIdx.x % kQuads * 4;
  static_assert(kMostRows % kAtOnce == 0);
#pragma unroll
  for (int begin = 0; begin < kMostRows; begin += kAtOnce) {
    const int r = begin + threadIdx.x / kQuads;
    const Quad quad = r < rows && c < columns ? Quad::at(from + r * stride + c) : Quad{};
    Number* const row = to + column_of(r) * (kMostColumns + 8) + column_of(c);
#pragma unroll
    for (int e = 0; e < 4; e += 2) {
      *reinterpret_cast<std::uint32_t*>(row + 4 * e) =
          Core::pair(Core::rounded(quad.x[e]), Core::rounded(quad.x[e + 1]));
    }
  }
}
/// A vector to shared memory, zeros beyond.
template <int kMost> __device__ void load_vector(const float* from, int width, float (&to)[kMost]) {
  static_assert(kMost <= kThreads);
  const int i = threadIdx.x;
  if (i < kMost) to[i] = i < width ? from[i] : 0.0f;
}
/// A lane's channels of step s of such a vector.
__device__ inline const Quad& quad_of(const float* vector, int step, const WarpTokens& at) {
  return *reinterpret_cast<const Quad*>(vector + kMmaK * step + 4 * at.t);
}

/// Two product results side by side as a fragment A: their 16 columns become k.
struct Packed {
  Number n[2][4];  // rounded: [row half, column 2t, 2t + 1, 2t + 8, 2t + 9]
  __device__ explicit Packed(const Accumulator* two) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int i = 0; i < 4; ++i) n[half][i] = Core::rounded(entry(two, half, i));
    }
  }
  [[nodiscard]] __device__ Core::FragmentA fragment_a() const { return Core::fragment_a(n); }
  /// The transposed rows of a half as a fragment B.
  [[nodiscard]] __device__ Core::FragmentB fragment_b(int half) const {
    return Core::fragment_b(n[half][0], n[half][1], n[half][2], n[half][3]);
  }
  /// To rows g and g + 8 of shared memory from `corner` on.
  __device__ void store(Number* corner, int stride, const cuda::LaneMap& at) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      Number* const to = corner + (at.g + 8 * half) * stride + 2 * at.t;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        *reinterpret_cast<std::uint32_t*>(to + 8 * i) =
            Core::pair(n[half][2 * i], n[half][2 * i + 1]);
      }
    }
  }
  /// To the warp's rows of a tile, [tokens, kStride], from `column` on.
  __device__ void store(Number* tile, const WarpTokens& at, int column) const {
    store(tile + kRows * at.warp * kStride + column, kStride, at);
  }
};

/// sums[0] and sums[1], columns 0 and 8 on, += a times 16 rows of shared memory.
__device__ inline void add_rows(const Core::FragmentA& a, const Number* corner, int stride,
                                Accumulator* sums) {
  Core::FragmentB two[2];
  Core::ldmatrix_b_trans(corner, stride, two);
  Core::mma(sums[0], a, two[0]);
  Core::mma(sums[1], a, two[1]);
}
/// The same with the transposed 16 rows.
__device__ inline void add_columns(const Core::FragmentA& a, const Number* corner, int stride,
                                   Accumulator* sums) {
  Core::FragmentB two[2];
  Core::ldmatrix_b(corner, stride, two);
  Core::mma(sums[0], a, two[0]);
  Core::mma(sums[1], a, two[1]);
}

/// Channels [16 s, 16 s + 16) of rows, in the layout of product results.
template <class Source> __device__ void load_step(const Source& from, int step, Accumulator* two) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const Quad quad = from.load(half, step);
#pragma unroll
    for (int i = 0; i < 4; ++i) entry(two, half, i) = quad.x[i];
  }
}
/// kWidth channels of rows, from step `first` on, as fragments A.
template <class Source>
__device__ void load_a(const Source& from, int first, Core::FragmentA (&a)[kSteps]) {
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    Accumulator two[2];
    load_step(from, first + step, two);
    a[step] = Packed(two).fragment_a();
  }
}
/// out += their products with a weight's rows.
__device__ inline void multiply(const Core::FragmentA (&a)[kSteps], const Number* weight,
                                Accumulator (&out)[kWidth / 8]) {
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
#pragma unroll
    for (int c = 0; c < kWidth / 8; c += 2) {
      add_columns(a[step], weight + 8 * c * kStride + kMmaK * step, kStride, out + c);
    }
  }
}

/// Adds up kCount values of each of the eight lanes g that share t, and leaves every lane with
/// kCount / 8 of them, or one if that is less: those from index kCount / 8 g on.
template <int kCount, int kOffset = kWarp / 2, int kAll>
__device__ __forceinline__ void share_sums(float (&v)[kAll]) {
  if constexpr (kCount == 1) {
    v[0] += __shfl_xor_sync(cuda::kAllLanes, v[0], kOffset);
  } else {
    const bool upper = (threadIdx.x & kOffset) != 0;
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) {
      const float low = v[i], high = v[i + kCount / 2];
      v[i] = (upper ? high : low) + __shfl_xor_sync(cuda::kAllLanes, upper ? low : high, kOffset);
    }
  }
  if constexpr (kOffset > 4) share_sums<(kCount + 1) / 2, kOffset / 2>(v);
}

/// Adds a lane's sums of 16 channels, over its rows, to the warp's line; two lanes have each sum.
__device__ inline void add_sums(const WarpTokens& at, float (&v)[4], float* line) {
  share_sums<4>(v);
  if (at.g % 2 == 0) line[4 * at.t + at.g / 2] += v[0];
}
__device__ inline void add_sums(const WarpTokens& at, const Accumulator* two, float* line) {
  float v[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) v[i] = entry(two, 0, i) + entry(two, 1, i);
  add_sums(at, v, line);
}

/// Rows through dropout to shared memory; their sums to the warp's line.
template <class Source, class Kept> __device__ void load_part(const Source& rows, const Kept& kept,
                                                              const WarpTokens& at, Number* to,
                                                              float* line) {
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    Accumulator two[2];
    load_step(rows, step, two);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int i = 0; i < 4; ++i) entry(two, half, i) *= kept.factor(half, step, i);
    }
    Packed(two).store(to, at, kMmaK * step);
    add_sums(at, two, line + kMmaK * step);
  }
}

__device__ __forceinline__ Quad quad_of(const Accumulator* two, int half) {
  return {{entry(two, half, 0), entry(two, half, 1), entry(two, half, 2), entry(two, half, 3)}};
}

/// y = x + drop(result + bias): a product's result leaves registers once.
template <class Source> __device__ void add_to_residual(const WarpTokens& at,
                                                        const Accumulator (&result)[kWidth / 8],
                                                        const float* bias, const Keep& keep,
                                                        const Source& x, const Rows<float>& y) {
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const Quad biases = quad_of(bias, step, at);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      Quad quad = x.load(half, step);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        quad.x[i] += (entry(result + 2 * step, half, i) + biases.x[i]) * keep.factor(half, step, i);
      }
      y.store(half, step, quad);
    }
  }
}

/// The lines of all warps, added in order.
template <int kLines, int kMost>
__device__ void store_sums(const float (&lines)[kLines][kMost], int width, float* to) {
  static_assert(kMost <= kThreads);
  const int i = threadIdx.x;
  if (i >= width) return;
  float total = lines[0][i];
#pragma unroll
  for (int line = 1; line < kLines; ++line) total += lines[line][i];
  to[i] = total;
}

}  // namespace skytape::tensor::token_tiles
