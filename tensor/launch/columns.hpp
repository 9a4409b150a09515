// The third loop of launch.hpp: sums down the columns of [outer, n, inner]. Included by kernel
// files only.
//
// n is cut into chunks of a fixed size whose sums are added in a second pass, so that a long n
// keeps every core busy and the result depends on neither the thread count nor the grid.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tensor/core/tensor.hpp"
#include "tensor/launch/launch.hpp"
#ifdef __CUDACC__
#include "tensor/launch/four.hpp"
#endif

namespace skytape {

#ifndef __CUDACC__
namespace cpu {

/// partial[k, o, c, j] = sum of f(k, o, i, j) over the i of chunk c.
template <int K, class T, class F> void column_chunks(std::int64_t outer, std::int64_t n,
                                                      std::int64_t inner, std::int64_t chunks,
                                                      std::int64_t chunk, const F& f, T* partial) {
  constexpr std::int64_t kStripe = 128;  // columns of one task: their sums stay in L1
  constexpr std::int64_t kBlock = 32;    // rows summed in T before they join the double sum
  const std::int64_t stripes = ceil_div(inner, kStripe);
#pragma omp parallel for schedule(static) if (K * outer * n * inner > kParallelWork)
  for (std::int64_t task = 0; task < outer * chunks * stripes; ++task) {
    const std::int64_t o = task / stripes / chunks, c = task / stripes % chunks;
    const std::int64_t left = task % stripes * kStripe;
    const std::int64_t width = std::min(kStripe, inner - left);
    const std::int64_t end = std::min(n, (c + 1) * chunk);
    const F entry = f;  // a local copy: its pointers stay in registers
    double total[K][kStripe] = {};
    for (std::int64_t begin = c * chunk; begin < end; begin += kBlock) {
      for (int k = 0; k < K; ++k) {  // the block's rows stay in cache for the next k
        T sum[kStripe] = {};
        for (std::int64_t i = begin; i < std::min(begin + kBlock, end); ++i) {
#pragma omp simd
          for (std::int64_t j = 0; j < width; ++j) sum[j] += entry(k, o, i, left + j);
        }
#pragma omp simd
        for (std::int64_t j = 0; j < width; ++j) total[k][j] += sum[j];
      }
    }
    for (int k = 0; k < K; ++k) {
      T* const to = partial + ((k * outer + o) * chunks + c) * inner + left;
      for (std::int64_t j = 0; j < width; ++j) to[j] = static_cast<T>(total[k][j]);
    }
  }
}

}  // namespace cpu
using cpu::column_chunks;
inline constexpr Device kBackendDevice = Device::cpu;
#else
namespace cuda {

inline constexpr int kColumnLanes = 32;  // columns of a block
inline constexpr int kColumnGroups = 8;  // rows it reads at a time

template <class T, class F> struct ColumnChunks {
  std::int64_t outer, n, inner, chunks, chunk;
  F f;
  T* partial;
};

template <int K, class T, class F>
__global__ void column_chunks_kernel(Late<ColumnChunks<T, F>> late) {
  const auto& [outer, n, inner, chunks, chunk, f, partial] = late.wait();
  auto& meet = shared<T[K][kColumnGroups][kColumnLanes]>();
  const std::int64_t stripes = ceil_div(inner, kColumnLanes);
  for (std::int64_t task = blockIdx.x; task < outer * chunks * stripes; task += gridDim.x) {
    const std::int64_t o = task / stripes / chunks, c = task / stripes % chunks;
    const std::int64_t j = task % stripes * kColumnLanes + threadIdx.x;
    const std::int64_t end = (c + 1) * chunk < n ? (c + 1) * chunk : n;
    T sum[K] = {};
    if (j < inner) {
      // Several loads on their way: few columns have few threads, which would wait for each of
      // them.
#pragma unroll 8
      for (std::int64_t i = c * chunk + threadIdx.y; i < end; i += kColumnGroups) {
#pragma unroll
        for (int k = 0; k < K; ++k) sum[k] += f(k, o, i, j);
      }
    }
#pragma unroll
    for (int k = 0; k < K; ++k) meet[k][threadIdx.y][threadIdx.x] = sum[k];
    __syncthreads();
    if (threadIdx.y < K && j < inner) {  // one group of lanes finishes each k
      const std::int64_t k = threadIdx.y;
      T total = meet[k][0][threadIdx.x];
      for (int group = 1; group < kColumnGroups; ++group) total += meet[k][group][threadIdx.x];
      partial[((k * outer + o) * chunks + c) * inner + j] = total;
    }
    __syncthreads();  // the next task reuses `meet`
  }
}

/// Summands of which f.four(i, j, x) has those of columns j to j + 3 of row i, made of x = f.load(i,
/// j), where f.has_fours(), which is asked before the launch.
template <class F>
concept InFours = requires(const F& f) {
  f.has_fours();
};

/// Sums such summands down the rows of each chunk, for outer = 1: a lane has four columns. The order,
/// and so the bits, are those of column_chunks_kernel.
template <class T, class F> __global__ void column_fours_kernel(Late<ColumnChunks<T, F>> late) {
  const auto& [outer, n, inner, chunks, chunk, f, partial] = late.wait();
  constexpr int kColumns = 4 * kColumnLanes;
  auto& meet = shared<Four<T>[kColumnGroups][kColumnLanes]>();
  const std::int64_t stripes = ceil_div(inner, kColumns);
  for (std::int64_t task = blockIdx.x; task < chunks * stripes; task += gridDim.x) {
    const std::int64_t c = task / stripes, left = task % stripes * kColumns;
    const std::int64_t j = left + 4 * threadIdx.x;
    const std::int64_t end = (c + 1) * chunk < n ? (c + 1) * chunk : n;
    Four<T> sum{};
    constexpr int kAhead = 4;  // loads on their way: four() may store, which none can overtake
    if (j < inner) {
#pragma unroll 1
      for (std::int64_t i = c * chunk + threadIdx.y; i < end; i += kAhead * kColumnGroups) {
        decltype(f.load(i, j)) loaded[kAhead];
#pragma unroll
        for (int a = 0; a < kAhead; ++a) {
          if (i + a * kColumnGroups < end) loaded[a] = f.load(i + a * kColumnGroups, j);
        }
#pragma unroll
        for (int a = 0; a < kAhead; ++a) {
          if (i + a * kColumnGroups >= end) break;
          const Four<T> four = f.four(i + a * kColumnGroups, j, loaded[a]);
#pragma unroll
          for (int u = 0; u < 4; ++u) sum.x[u] += four.x[u];
        }
      }
    }
    meet[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    const int column = threadIdx.y * kColumnLanes + threadIdx.x;
    if (column < kColumns && left + column < inner) {
      const auto of_group = [&](int group) { return meet[group][column / 4].x[column % 4]; };
      T total = of_group(0);
      for (int group = 1; group < kColumnGroups; ++group) total += of_group(group);
      partial[c * inner + left + column] = total;
    }
    __syncthreads();  // the next task reuses `meet`
  }
}

/// partial[k, o, c, j] = sum of f(k, o, i, j) over the i of chunk c.
template <int K, class T, class F> void column_chunks(std::int64_t outer, std::int64_t n,
                                                      std::int64_t inner, std::int64_t chunks,
                                                      std::int64_t chunk, const F& f, T* partial) {
  static_assert(K <= kColumnGroups);
  if constexpr (InFours<F>) {
    static_assert(K == 1);
    if (outer == 1 && f.has_fours()) {
      const std::int64_t tasks = chunks * ceil_div(inner, 4 * kColumnLanes);
      if (tasks == 0) return;
      return launch(
          {kernel_label<F>("column fours"), grid_for(tasks, 1), dim3(kColumnLanes, kColumnGroups)},
          column_fours_kernel<T, F>,
          ColumnChunks<T, F>{outer, n, inner, chunks, chunk, f, partial});
    }
  }
  const std::int64_t tasks = outer * chunks * ceil_div(inner, kColumnLanes);
  if (tasks == 0) return;
  launch({kernel_label<F>("column chunks"), grid_for(tasks, 1), dim3(kColumnLanes, kColumnGroups)},
         column_chunks_kernel<K, T, F>,
         ColumnChunks<T, F>{outer, n, inner, chunks, chunk, f, partial});
}

}  // namespace cuda
using cuda::column_chunks;
inline constexpr Device kBackendDevice = Device::cuda;
#endif

// Internal, as in kernel files: both builds define these under one name and with other loops, and
// the linker would keep only one of them.
namespace {

/// The sums of one chunk when inner = 1: a row for a team.
template <int K, class T, class F> struct RowChunk {
  F f;
  T* partial;  // [K, outer, chunks]
  std::int64_t outer, n, chunks, chunk;
  template <class Team> HD void operator()(std::int64_t row, const Team& team) const {
    const std::int64_t line = chunks == 1 ? row : row / chunks, c = row - line * chunks;
    const int k = K == 1 ? 0 : static_cast<int>(line / outer);
    const std::int64_t o = line - k * outer;
    const std::int64_t begin = c * chunk;
    const T sum = team.sum(math::min(chunk, n - begin),
                           [=, entry = f](std::int64_t i) { return entry(k, o, begin + i); });
    if (team.leader()) partial[row] = sum;
  }
};

/// Partial sums as the summands of the next pass.
template <class T> struct PartialEntry {
  const T* partial;  // [outer, n, inner]
  std::int64_t n, inner;
  HD T operator()(int, std::int64_t o, std::int64_t i, std::int64_t j) const {
    return partial[(o * n + i) * inner + j];
  }
  HD T operator()(int, std::int64_t o, std::int64_t i) const { return partial[o * n + i]; }
};

/// out[k, o, j] = sum over i < n of f(k, o, i, j), for k < K, o < outer, j < inner. Where inner is
/// 1 it calls f(k, o, i) instead, so that the compiler sees a contiguous row.
template <int K, class T, class F>
void columns(std::int64_t outer, std::int64_t n, std::int64_t inner, const F& f, T* out) {
  if (outer * inner == 0) return;
  const std::int64_t chunk = inner == 1 ? 8192 : 256;
  const std::int64_t chunks = std::max<std::int64_t>(ceil_div(n, chunk), 1);
  Tensor partial;  // [K, outer, chunks, inner]
  if (chunks > 1) partial = Tensor::empty({K, outer, chunks, inner}, kDTypeOf<T>, kBackendDevice);
  T* const to = chunks > 1 ? partial.data<T>() : out;
  if (inner == 1) {
    rows(K * outer * chunks, std::min(n, chunk), RowChunk<K, T, F>{f, to, outer, n, chunks, chunk});
  } else {
    column_chunks<K>(outer, n, inner, chunks, chunk, f, to);
  }
  if (chunks > 1) columns<1, T>(K * outer, chunks, inner, PartialEntry<T>{to, chunks, inner}, out);
}

}  // namespace

}  // namespace skytape
