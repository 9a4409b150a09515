// Additions of Performer's passes to the Gaussian kernel's tiles (gaussian_kernel_fragments.hpp):
// the rows of a block, the form that they are loaded in, and the largest products of rows, which
// are stabilisers.
#pragma once

#include <cstdint>
#include <limits>

#include "attention/feature_maps/gaussian_kernel_cuda.hpp"
#include "attention/feature_maps/gaussian_kernel_fragments.hpp"
#include "tensor/gemm/tensor_core.hpp"
#include "tensor/launch/cuda.hpp"
#include "tensor/launch/four.hpp"
#include "tensor/launch/math.hpp"

namespace skytape::attention::kernel_cuda {

/// The arrays that a launch reads and writes; null where it has none.
struct Pass {
  const float *x, *w;           // q or k [G, N, D], W [R, D]
  RowFactors of_x;              // s or s mu
  const float* v;               // [G, N, D]
  RowFactors of_v, normaliser;  // mu; what U has in its last column
  const float* y;               // T or dT [G, R, P]
  const float *out, *dout;      // [G, N, D]
  float* parts;                 // of T or dT: [G, chunks, R, P]
  float *rows_out, *dx, *dv;    // O, dq or dk, dv: [G, N, D]
  float *normalisers, *sums;    // [G, N]: S[:, D]; row_sum(dF F)
  float* largest;               // [G, N]
  std::int32_t* position;       // [G, N]
  const float* c;               // [scopes]
  std::int64_t scope;
  float epsilon;
  bool maxima_have_gradients;
};

/// The rows of a block.
struct Chunk {
  std::int64_t head, first_of_head, first;  // of all heads' rows
  int count;

  __device__ explicit Chunk(const Sizes& s)
      : head(blockIdx.x / s.chunks),
        first_of_head(blockIdx.x % s.chunks * kChunkRows),
        first(head * s.rows + first_of_head),
        count(static_cast<int>(math::min(kChunkRows, s.rows - first_of_head))) {}
};

/// The rows of a tile: `from` on of a chunk.
struct TileRows {
  std::int64_t head, first_of_head, first;
  int count;

  __device__ TileRows(const Chunk& chunk, int from)
      : head(chunk.head),
        first_of_head(chunk.first_of_head + from),
        first(chunk.first + from),
        count(math::min(kTile, chunk.count - from)) {}
  __device__ RowFactors factors(const Sizes& s, const RowFactors& all) const {
    return all.from(s, head, first_of_head);
  }
};

/// W, with c of the keys' scope taken from every exponent, if there is one.
template <class Core, int kD, int kP> __device__ void load_features(const Sizes& s, const Pass& p,
                                                                    const Chunk& chunk,
                                                                    Side<Core, kD, kP>& features) {
  features.first.load(p.w, s.landmarks, s.width, false, features.term);
  if (p.c == nullptr) return;
  __syncthreads();
  if (threadIdx.x < s.landmarks) features.term[threadIdx.x] -= kLog2E * p.c[chunk.head / p.scope];
}

/// Rows of Y and U.
template <class Core, int kD, int kP> __device__ void load_keys(const Sizes& s, const Pass& p,
                                                                const TileRows& rows,
                                                                Side<Core, kD, kP>& keys) {
  keys.first.load(p.x + rows.first * s.width, rows.count, s.width, true, keys.term,
                  rows.factors(s, p.of_x));
  keys.second.load_beside(p.v + rows.first * s.width, rows.count, s.width, rows.factors(s, p.of_v),
                          rows.factors(s, p.normaliser));
}

/// Rows of dS = [dout, -row_sum(dout O)] / S[:, D], zero where that is. Columns behind these stay
/// as they are.
template <class Core, int kD, int kP>
__device__ void load_ratio_gradient(const Sizes& s, const Pass& p, const TileRows& rows,
                                    Tile<Core, kP>& tile) {
  constexpr int kQuads = kD / 4;
  const int width = static_cast<int>(s.width);
  const float* const dout = p.dout + rows.first * s.width;
  const float* const out = p.out + rows.first * s.width;
#pragma unroll 1
  for (int e = threadIdx.x; e < kTile * kQuads; e += kThreads) {
    const int row = e / kQuads, c = 4 * (e % kQuads);
    const Four<float> upstream = cuda::load_four(dout, row, rows.count, width, c);
    const Four<float> result = cuda::load_four(out, row, rows.count, width, c);
    const float normaliser = row < rows.count ? p.normalisers[rows.first + row] : 0.0f;
    const float inverse = normaliser == 0.0f ? 0.0f : 1.0f / normaliser;
    float dot = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) dot += upstream.x[i] * result.x[i];
    const float last = -inverse * cuda::warp_reduce<kQuads>(dot);
    Four<typename Core::Number> numbers;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      numbers.x[i] = Core::rounded(c + i == width ? last : upstream.x[i] * inverse);
    }
    auto* const to = tile.n + row * Tile<Core, kP>::kStride;
    numbers.store(to + c);
    if (c + 4 == kD && width == kD) to[kD] = Core::rounded(last);
  }
}

/// The largest product of each own row with the other side's, and the first row that gives it.
struct Largest {
  float value[2];
  std::int32_t position[2];

  template <class Core, int kD>
  __device__ Largest(const WarpRows& at, const Tile<Core, kD>& own_rows,
                     const Tile<Core, kD>& other, int count)
      : value{-std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()},
        position{0, 0} {
    typename Core::FragmentA own[kD / kMmaK];
    own_rows.own_rows(at, own);
#pragma unroll 2
    for (int from = 0; from < count; from += kMmaK) {
      Accumulator products[2];
      other.scores(own, from, products);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int half = i / 2 % 2, j = from + i / 4 * 8 + 2 * at.t + i % 2;
        const float product = products[i / 4].x[half][i % 2];
        const bool better = j < count && product > value[half];  // of equal ones the first stays
        value[half] = better ? product : value[half];
        position[half] = better ? j : position[half];
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {  // over the four lanes of a row
#pragma unroll
      for (int lanes = 1; lanes < 4; lanes *= 2) {
        const float theirs = __shfl_xor_sync(cuda::kAllLanes, value[half], lanes);
        consider(half, theirs, __shfl_xor_sync(cuda::kAllLanes, position[half], lanes));
      }
    }
  }
  /// To arrays [G, N], from row `first` of these on.
  __device__ void store(const WarpRows& at, float* values, std::int32_t* positions,
                        std::int64_t first, int count) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = at.row_of(half);
      if (at.t != 0 || row >= count) continue;
      values[first + row] = value[half];
      positions[first + row] = position[half];
    }
  }
  /// From the rows' terms of the exponent.
  __device__ void take_from(const WarpRows& at, float* term) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (at.t == 0) term[at.row_of(half)] -= kLog2E * value[half];
    }
    __syncwarp();
  }

 private:
  __device__ void consider(int half, float product, std::int32_t j) {
    const bool better = product > value[half] || (product == value[half] && j < position[half]);
    value[half] = better ? product : value[half];
    position[half] = better ? j : position[half];
  }
};

/// d -= sums w_j, with each own row's feature j of the largest product.
template <class Core, int kD, int kP>
__device__ void subtract_maxima(const WarpRows& at, const std::int32_t* position, int count,
                                const Tile<Core, kD>& w, Totals<kD, kP>& totals) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float sum = over_row(totals.sums[half]);
    const int row = at.row_of(half);
    const int j = row < count ? position[row] : 0;
#pragma unroll
    for (int c = 0; c < kD / 8; ++c) {
#pragma unroll
      for (int e = 0; e < 2; ++e) totals.d[c].x[half][e] -= sum * w.at(j, 8 * c + 2 * at.t + e);
    }
  }
}

}  // namespace skytape::attention::kernel_cuda
