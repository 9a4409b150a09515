// A loop over rows that are often narrow; assignments, updates and sums for which a GPU moves four
// numbers at a time.
// Included by kernel files only.
#pragma once

#include <cstdint>
#include <type_traits>

#include "tensor/launch/launch.hpp"
#ifdef __CUDACC__
#include "tensor/launch/four.hpp"
#endif

namespace skytape {

#ifndef __CUDACC__
namespace cpu {

/// to[i] = f(from[i]...), i < n.
template <class T, class F, class... From>
[[gnu::always_inline]] inline void assign(const Team& team, std::int64_t n, T* to, const F& f,
                                          const From*... from) {
  team.each(n, [=](std::int64_t i) { to[i] = f(from[i]...); });
}

/// f(x[i]...), i < n: may change the entries of arrays that are not const.
template <class F, class... X>
[[gnu::always_inline]] inline void update(const Team& team, std::int64_t n, const F& f, X*... x) {
  team.each(n, [=](std::int64_t i) { f(x[i]...); });
}

/// Σ f(from[i]...) over i < n.
template <class F, class... From>
[[gnu::always_inline]] inline auto sum_over(const Team& team, std::int64_t n, const F& f,
                                            const From*... from) {
  return team.sum(n, [=](std::int64_t i) { return f(from[i]...); });
}

/// to[i] += Σ f(t, i) over begin <= t < end in their order, i < n: a loop over i vectorises.
template <class T, class F>
[[gnu::always_inline]] inline void add_terms(const Team& team, std::int64_t n, T* to,
                                             std::int64_t begin, std::int64_t end, const F& f) {
  for (std::int64_t t = begin; t < end; ++t) {
    team.each(n, [=](std::int64_t i) { to[i] += f(t, i); });
  }
}

template <class F> void narrow_rows(std::int64_t count, std::int64_t width, const F& f) {
  rows(count, width, f);
}

}  // namespace cpu
using cpu::add_terms;
using cpu::assign;
using cpu::narrow_rows;
using cpu::sum_over;
using cpu::update;
#else
namespace cuda {

/// to[i] = f(from[i]...), i < n: loads and stores of 16 bytes where the row allows them.
template <class Team, class T, class F, class... From>
__device__ void assign(const Team& team, std::int64_t n, T* to, const F& f, const From*... from) {
  if (n % 4 != 0 || !Four<T>::aligned(to) || !(... && Four<From>::aligned(from))) {
    return team.each(n, [&](std::int64_t i) { to[i] = f(from[i]...); });
  }
  const auto four = [&](std::int64_t i, const Four<From>&... in) {
    Four<T> out;
#pragma unroll
    for (int u = 0; u < 4; ++u) out.x[u] = f(in.x[u]...);
    out.store_global(to + i);
  };
  team.each(n / 4, [&](std::int64_t i) { four(4 * i, Four<From>::at(from + 4 * i)...); });
}

/// f(x[i]...), i < n, which may change the entries of arrays that are not const, with loads and
/// stores as assign's.
template <class Team, class F, class... X>
__device__ void update(const Team& team, std::int64_t n, const F& f, X*... x) {
  if (n % 4 != 0 || !(... && Four<std::remove_const_t<X>>::aligned(x))) {
    return team.each(n, [&](std::int64_t i) { f(x[i]...); });
  }
  const auto store = []<class T>(const Four<std::remove_const_t<T>>& four, T* to) {
    if constexpr (!std::is_const_v<T>) four.store_global(to);
  };
  const auto change = [&](std::int64_t i, Four<std::remove_const_t<X>>... four) {
#pragma unroll
    for (int u = 0; u < 4; ++u) f(four.x[u]...);
    (store(four, x + i), ...);
  };
  team.each(n / 4,
            [&](std::int64_t i) { change(4 * i, Four<std::remove_const_t<X>>::at(x + 4 * i)...); });
}

/// Σ f(from[i]...) over i < n, with loads as assign's.
template <class Team, class F, class... From>
__device__ auto sum_over(const Team& team, std::int64_t n, const F& f, const From*... from) {
  if (n % 4 != 0 || !(... && Four<From>::aligned(from))) {
    return team.sum(n, [&](std::int64_t i) { return f(from[i]...); });
  }
  const auto four = [&](const Four<From>&... in) {
    return (f(in.x[0]...) + f(in.x[1]...)) + (f(in.x[2]...) + f(in.x[3]...));
  };
  return team.sum(n / 4, [&](std::int64_t i) { return four(Four<From>::at(from + 4 * i)...); });
}

/// to[i] += Σ f(t, i) over begin <= t < end in their order, i < n: the sum stays in a register.
template <class Team, class T, class F> __device__ void add_terms(const Team& team, std::int64_t n,
                                                                  T* to, std::int64_t begin,
                                                                  std::int64_t end, const F& f) {
  team.each(n, [&](std::int64_t i) {
    T sum = to[i];
    for (std::int64_t t = begin; t < end; ++t) sum += f(t, i);
    to[i] = sum;
  });
}

/// A few neighbouring lanes of a warp own the row; its other lanes own other rows.
template <int kLanes> struct Lanes {
  int lane;  // of the row's

  template <class F> __device__ void each(std::int64_t n, const F& f) const {
    for (std::int64_t i = lane; i < n; i += kLanes) f(i);
    __syncwarp(mask());
  }
  template <class F> __device__ auto sum(std::int64_t n, const F& f) const {
    using T = decltype(f(std::int64_t{}));
    T s = 0;
    for (std::int64_t i = lane; i < n; i += kLanes) s += f(i);
    return warp_reduce<kLanes>(s, Add{}, mask());
  }
  __device__ bool leader() const { return lane == 0; }
  /// Bit l: lane l of the row has a true one.
  __device__ unsigned ballot(bool one) const {
    return __ballot_sync(mask(), one) >> shift() & ~0u >> (kWarp - kLanes);
  }
  template <class T> __device__ T of_lane(T value, int l) const {
    return __shfl_sync(mask(), value, shift() + l);
  }

 private:
  __device__ int shift() const { return static_cast<int>(threadIdx.x % kWarp) - lane; }
  /// The row's lanes of the warp: others may be elsewhere.
  __device__ unsigned mask() const { return ~0u >> (kWarp - kLanes) << shift(); }
};

template <int kLanes, class F> __global__ void narrow_rows_kernel(Late<Loop<F>> late) {
  const auto& [count, f] = late.wait();
  constexpr int kRows = kBlockThreads / kLanes;  // of a block
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kRows;
  for (std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kRows + threadIdx.x / kLanes;
       row < count; row += stride) {
    f(row, Lanes<kLanes>{static_cast<int>(threadIdx.x) % kLanes});
  }
}

/// f(row, lanes) for row in [0, count).
template <int kLanes, class F> void lanes_rows(std::int64_t count, const F& f) {
  if (count == 0) return;
  launch({kernel_label<F>("narrow rows"), grid_for(count, kBlockThreads / kLanes), kBlockThreads},
         narrow_rows_kernel<kLanes, F>, Loop<F>{count, f});
}

/// f(row, team) as by rows(), but up to 64 entries are for 8 lanes: what a row costs apart from its
/// entries (divisions, indices) is paid once for four rows then.
template <class F> void narrow_rows(std::int64_t count, std::int64_t width, const F& f) {
  width <= 64 ? lanes_rows<8>(count, f) : rows(count, width, f);
}

}  // namespace cuda
using cuda::add_terms;
using cuda::assign;
using cuda::narrow_rows;
using cuda::sum_over;
using cuda::update;
#endif

}  // namespace skytape
