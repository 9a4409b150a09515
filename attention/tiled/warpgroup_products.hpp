// The products of tensor_core_tiles.hpp by four warps together (tensor/gemm/warpgroup.hpp), for
// heads of 64 in bf16 on compute capability 9.0, CUDA only: 64 own rows, and a whole tile's scores
// at once. With heads that wide products are the larger part of attention, and these have twice the
// rate of a warp's.
#pragma once

#include <cuda_pipeline.h>

#include "attention/tiled/tensor_core_tiles.hpp"
#include "tensor/gemm/warpgroup.hpp"

namespace skytape::attention::tensor_core_tiles {

struct WarpgroupProducts : Products<Precision::bf16, cuda::warpgroup::kRow> {
  static constexpr int kSpan = kBlockN, kSlice = kBlockN, kTogether = kBlockN / kMmaN;
  static_assert(kThreads == cuda::warpgroup::kThreads &&
                kBlockM == kThreads / cuda::kWarp * kWarpM);
  struct Tile {
    alignas(cuda::warpgroup::kPatternBytes) Number n[kBlockN * kWidth];
  };
  using Scores = Accumulator[kTogether][kTall];

  template <int kBlockThreads = kThreads>
  __device__ static void begin_tile(const Number* first, Tile& target) {
    constexpr int kRun = cuda::warpgroup::kEight, kRuns = kWidth / kRun;
#pragma unroll
    for (int i = 0; i < kBlockN * kRuns / kBlockThreads; ++i) {
      const int e = i * kBlockThreads + threadIdx.x;
      const int place = cuda::warpgroup::place(e / kRuns, e % kRuns * kRun);
      __pipeline_memcpy_async(target.n + place, first + e * kRun, 16);
    }
  }
  __device__ static void copies_came() { cuda::warpgroup::ptx::fence_async_proxy(); }
  template <class... Operands> __device__ static void before_products(Operands&... operands) {
    cuda::warpgroup::begin(operands...);
  }
  template <class... Operands> __device__ static void after_products(Operands&... operands) {
    cuda::warpgroup::await(operands...);
  }
  [[nodiscard]] __device__ static bool any(bool yes) { return __syncthreads_or(yes ? 1 : 0) != 0; }

  __device__ static void add_scores(const LaneMap&, const Own& own, const Tile& tile, int first,
                                    Scores& sums) {
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      cuda::warpgroup::add_by_columns(sums, own[0][s], tile.n + first * kWidth + kMmaK * s);
    }
  }
  template <int kSixteens>
  __device__ static void add_weighted(const FragmentA (&weights)[kSixteens][kTall],
                                      const Tile& tile, int first, Total& total) {
#pragma unroll
    for (int c = 0; c < kSixteens; ++c) {
      cuda::warpgroup::add_by_rows(total, weights[c][0], tile.n + (first + kMmaK * c) * kWidth);
    }
  }
};

}  // namespace skytape::attention::tensor_core_tiles
