// Definitions that layer norm's kernels share, CUDA only: a row of E numbers lies over a few
// neighbouring lanes of a warp, so that each of them moves 16 bytes at a time and short rows leave
// no lane idle.
#pragma once

#include <cstdint>

#include "tensor/launch/four.hpp"
#include "tensor/launch/launch.hpp"
#include "tensor/norm/layer_norm.hpp"

namespace skytape::tensor::norm_rows {

using cuda::kWarp;

/// kLanes lanes have a row, kOwn times four neighbouring numbers each.
template <class T_, int kLanes_, int kOwn_> struct Row {
  using T = T_;
  static constexpr int kLanes = kLanes_, kOwn = kOwn_;
  static constexpr int kAtOnce = kWarp / kLanes;  // rows of a warp
  static constexpr int kWidth = 4 * kLanes * kOwn;

  cuda::Four<T> own[kOwn];

  Row() = default;
  /// Reads a row in memory; zeros beyond its end and where it is null.
  __device__ Row(const T* row, int e) {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) own[i] = cuda::load_four(row, column(i), e);
  }
  /// Writes it as numbers of its own type, or of another.
  template <class Y> __device__ void store(Y* row, int e) const {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      cuda::Four<Y> four;
#pragma unroll
      for (int u = 0; u < 4; ++u) four.x[u] = static_cast<Y>(own[i].x[u]);
      cuda::store_four(four, row, column(i), e);
    }
  }

  /// Returns the column where the lane's i-th four begin, and which of the warp's rows it has.
  __device__ static int column(int i) {
    return 4 * (static_cast<int>(threadIdx.x) % kLanes + kLanes * i);
  }
  __device__ static int place() { return static_cast<int>(threadIdx.x) % kWarp / kLanes; }

  /// f(i, u, column) for every number of the lane; what lies beyond the row's end is zero.
  template <class F> __device__ static void each(const F& f) {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
#pragma unroll
      for (int u = 0; u < 4; ++u) f(i, u, column(i) + u);
    }
  }
  /// Σ f(i, u, column) over the row; all of its lanes get it. To be called by the whole warp.
  template <class F> __device__ static T sum(const F& f) {
    T s = 0;
    each([&](int i, int u, int c) { s += f(i, u, c); });
    return cuda::warp_reduce<kLanes>(s);
  }
};

/// The mean and inverse deviation that norm a row.
template <class T> struct Moments { T mean, inv_std; };
template <class R>
__device__ Moments<typename R::T> moments(const R& x, int e, typename R::T epsilon) {
  using T = typename R::T;
  const T share = T(1) / static_cast<T>(e);
  const T mean = share * R::sum([&](int i, int u, int) { return x.own[i].x[u]; });
  // Two passes: E[x²] - mean² would cancel where the mean is large.
  const T variance = share * R::sum([&](int i, int u, int c) {
                       const T centred = c < e ? x.own[i].x[u] - mean : T(0);
                       return centred * centred;
                     });
  return {mean, T(1) / math::sqrt(variance + epsilon)};
}

/// dx of a row: with h = (x - mean) inv_std and g = dy weight, inv_std (g - mean(g) - h mean(g h)).
/// `g` becomes dx; zero beyond the row's end, as x and g are.
template <class R>
__device__ void backward(const R& x, const Moments<typename R::T>& m, int e, R& g) {
  using T = typename R::T;
  const T share = T(1) / static_cast<T>(e);
  const auto h = [&](int i, int u) { return (x.own[i].x[u] - m.mean) * m.inv_std; };
  const T mean_g = share * R::sum([&](int i, int u, int) { return g.own[i].x[u]; });
  const T mean_gh = share * R::sum([&](int i, int u, int) { return g.own[i].x[u] * h(i, u); });
  R::each([&](int i, int u, int) {
    g.own[i].x[u] = m.inv_std * (g.own[i].x[u] - mean_g - h(i, u) * mean_gh);
  });
}

/// f.operator()<Row>() with the narrowest rows that hold E numbers, which is_one_pass() allows.
template <class T, class F> void dispatch_width(std::int64_t e, const F& f) {
  if (e <= Row<T, 8, 1>::kWidth) return f.template operator()<Row<T, 8, 1>>();
  if (e <= Row<T, 16, 1>::kWidth) return f.template operator()<Row<T, 16, 1>>();
  if (e <= Row<T, 32, 1>::kWidth) return f.template operator()<Row<T, 32, 1>>();
  if (e <= Row<T, 32, 2>::kWidth) return f.template operator()<Row<T, 32, 2>>();
  if (e <= Row<T, 32, 4>::kWidth) return f.template operator()<Row<T, 32, 4>>();
  if constexpr (sizeof(T) == 4) {
    if (e <= Row<T, 32, 6>::kWidth) return f.template operator()<Row<T, 32, 6>>();
    f.template operator()<Row<T, 32, 8>>();
  }
}

/// The sums over a block's rows from those over each of its lanes' rows: lanes that
/// share columns are added within a warp, then warps in order. To be called by the whole block.
template <class R, int kWarps> struct BlockSums {
  typename R::T line[kWarps][R::kWidth];
  __device__ void add_up(const R& sums, int e, typename R::T* to) {
    using T = typename R::T;
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    R::each([&](int i, int u, int c) {
      const T s = cuda::warp_reduce_up<R::kLanes, kWarp>(sums.own[i].x[u]);
      if (R::place() == 0) line[warp][c] = s;
    });
    __syncthreads();
    for (int c = threadIdx.x; c < e; c += kWarps * kWarp) {
      T total = line[0][c];
      for (int w = 1; w < kWarps; ++w) total += line[w][c];
      to[c] = total;
    }
    __syncthreads();  // what comes next reuses the lines
  }
};

}  // namespace skytape::tensor::norm_rows
