// The tiles that the kernels of tiled attention on tensor cores walk over, CUDA only: they are in a
// block's shared memory, the next one is loaded while one is used, and dropout's decisions about
// their pairs come with them.
#pragma once

#include <cuda_pipeline.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "attention/tiled/head_dropout.hpp"
#include "attention/tiled/tensor_core_tiles.hpp"
#include "tensor/random/philox.hpp"

namespace skytape::attention::tiled_cuda {

using cuda::WarpRows;
using tensor_core_tiles::Accumulator;
using tensor_core_tiles::begin_entries;
using tensor_core_tiles::kBlockM;
using tensor_core_tiles::kBlockN;
using tensor_core_tiles::kMmaK;
using tensor_core_tiles::kThreads;

static_assert(philox::kChunk == 2 * kBlockN && kMmaK == philox::kLanes);

// Who owns keys owns a whole chunk of them: one counter decides about all of its keys.
inline constexpr int kKeyBlockM = philox::kChunk;
template <class P> inline constexpr int kKeyThreads = kThreads* kKeyBlockM / (kBlockM * P::kTall);

/// Dropout decisions of a lane that walks keys, about its two queries: bit 16 n + 8 e + c is of key
/// 16 c + 8 n + 2 t + e of a tile.
struct KeptOfLane {
  unsigned of_tile[2] = {~0u, ~0u};  // by row half

  /// On to the tile at j0. word(query): about a lane's query and the chunk that begins there.
  template <class F> __device__ void enter(const WarpRows& at, int i0, int j0, const F& word) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      of_tile[half] =
          j0 % philox::kChunk == 0 ? word(i0 + at.row_of(half)) : of_tile[half] >> kBlockN / kMmaK;
    }
  }
  [[nodiscard]] __device__ bool keeps(int half, int c, int n, int e) const {
    return (of_tile[half] >> (16 * n + 8 * e + c) & 1u) != 0;
  }
  /// Weights of a fragment's rows for keys from 16 c on become zero where they are dropped.
  template <int kEights, int kTall>
  __device__ void drop(int c, Accumulator (&weight)[kEights][kTall], int fragment) const {
#pragma unroll
    for (int i = 0; i < 4 * kEights; ++i) {
      const int n = i / 4, half = i / 2 % 2, e = i % 2;
      if (!keeps(half, c + n / 2, n % 2, e)) weight[n][fragment].x[half][e] = 0;
    }
  }
};

/// The same about 64 queries and the keys of a block, in shared memory, for who walks queries.
struct KeptOfKeys {
  alignas(16) std::uint32_t words[kBlockN * kWordsOfChunk];  // [query, t]

  /// Begins to load forward's decisions about the queries from i0 on; the wait is the tile's.
  __device__ void begin(const HeadDropout<float>& dropout, int i0, int j0) {
    if (!dropout.stores_decisions()) {
      for (unsigned w = threadIdx.x; w < kBlockN * kWordsOfChunk; w += blockDim.x) {
        words[w] = dropout.decided_word(i0 + w / kWordsOfChunk, j0, w % kWordsOfChunk);
      }
    } else if (threadIdx.x < kBlockN) {
      __pipeline_memcpy_async(words + threadIdx.x * kWordsOfChunk,
                              dropout.words(i0 + threadIdx.x, j0), 16);
    }
  }
  /// Returns the decisions about a query and the lane's keys: bit 16 half.
  [[nodiscard]] __device__ unsigned of_lane(const WarpRows& at, int query) const {
    return words[query * kWordsOfChunk + at.g / 2] >> (at.g % 2 * 8 + at.row / kMmaK);
  }
};

/// Shared memory of a block that walks keys, and of one that walks queries: while one tile is used,
/// the next one comes.
template <class P> struct KeyTile {
  using Products = P;
  typename P::Tile k, v;
  alignas(16) float column[kBlockN];

  /// Keys of a head from `first` on; no values where there are none.
  template <class Operands> __device__ void begin(const Operands& head, int first) {
    P::begin_tile(head.k + first * P::kWidth, k);
    if (head.v != nullptr) P::begin_tile(head.v + first * P::kWidth, v);
    begin_entries(head.column + first, column);
  }
};
template <class P> struct QueryTile {
  using Products = P;
  typename P::Tile q, dout;
  alignas(16) float shift[kBlockN], minus_delta[kBlockN];
  KeptOfKeys kept;

  /// Queries of a head from `first` on, and what was decided about them and the keys from j0 on.
  template <bool kDrops, class Operands> __device__ void begin(const Operands& head,
                                                               const HeadDropout<float>& dropout,
                                                               int first, int j0) {
    P::template begin_tile<kKeyThreads<P>>(head.q + first * P::kWidth, q);
    P::template begin_tile<kKeyThreads<P>>(head.dout + first * P::kWidth, dout);
    begin_entries(head.shift + first, shift);
    begin_entries(head.minus_delta + first, minus_delta);
    if constexpr (kDrops) kept.begin(dropout, first, j0);
  }
};
template <class Tile> struct Shared {
  Tile tiles[2];

  __device__ static Shared& of_block() {
    constexpr std::size_t kAlignment = std::max<std::size_t>(alignof(Shared), 16);
    return *reinterpret_cast<Shared*>(cuda::dynamic_shared<kAlignment>());
  }

  /// use(first, tile) for the tile of each kBlockN of `count` rows, by all threads of a block,
  /// while the next one comes: begin(first, tile) begins to copy it.
  template <class Begin, class Use>
  __device__ void walk(int count, const Begin& begin, const Use& use) {
    int now = 1;  // the tile at `first`

    for (int first = -kBlockN; first < count; first += kBlockN) {  // the first round only fetches
      __pipeline_wait_prior(0);
      Tile::Products::copies_came();
      __syncthreads();  // the tile is there, and everybody is done with the last one
      if (const int next = first + kBlockN; next < count) {
        begin(next, tiles[1 - now]);
        __pipeline_commit();
      }
      if (first >= 0) use(first, tiles[now]);
      now = 1 - now;
    }
  }
};

}  // namespace skytape::attention::tiled_cuda
