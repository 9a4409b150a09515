// Row kernels around the iterative inverse. Each is one pass where basic operations would be many
// small ones, whose launches cost a GPU more than their work.
#include "attention/landmarks/scaled_inverse_rows.hpp"
#include "tensor/launch/launch.hpp"

namespace skytape::attention {
namespace {

template <class T> struct InverseRoot {
  const T* m;  // [G, L, L]
  T* r;        // [G, L]
  std::int64_t size;

  template <class Team> HD void operator()(std::int64_t row, const Team& team) const {
    const T* const from = m + row * size;
    const T sum = team.sum(size, [&](std::int64_t j) { return from[j]; });
    if (team.leader()) r[row] = T(1) / math::sqrt(sum);
  }
};

template <class T> struct ScaleRow {
  const T *m, *p, *r;  // [G, L, L], [G, L, J], [G, L]
  T *scaled, *s;       // [G, L, L], [G, L, J]
  std::int64_t size, width;

  template <class Team> HD void operator()(std::int64_t row, const Team& team) const {
    const T own = r[row];
    const T* const other = r + row / size * size;
    const T *const from = m + row * size, *const factor = p + row * width;
    T *const to = scaled + row * size, *const product = s + row * width;
    team.each(size, [&](std::int64_t j) { to[j] = from[j] * own * other[j]; });
    team.each(width, [&](std::int64_t j) { product[j] = factor[j] * own; });
  }
};

template <class T> struct ScaledGradientRow {
  const T *r, *dm_scaled, *e, *e_sums;  // [G, L], [G, L, L], [G, L, L], [G, L]
  const T *dt, *f, *ds, *s;             // [G, L, J]
  T *dm, *dp;                           // [G, L, L], [G, L, J]
  std::int64_t size, width;

  template <class Team> HD void operator()(std::int64_t row, const Team& team) const {
    const T own = r[row];
    const T* const other = r + row / size * size;
    const std::int64_t square = row * size, wide = row * width;  // where the row begins
    const T of_p = team.sum(width, [&](std::int64_t j) { return ds[wide + j] * s[wide + j]; });
    const T of_t = team.sum(width, [&](std::int64_t j) { return dt[wide + j] * f[wide + j]; });
    const T of_m = team.sum(size, [&](std::int64_t j) { return e[square + j]; }) + e_sums[row];
    const T row_term = T(0.5) * own * own * (of_p + of_m + of_t * own);  // r^3 dr / 2
    team.each(size, [&](std::int64_t j) {
      dm[square + j] = dm_scaled[square + j] * own * other[j] - row_term;
    });
    team.each(width, [&](std::int64_t j) { dp[wide + j] = ds[wide + j] * own; });
  }
};

}  // namespace

void inverse_roots_on(Backend, const Tensor& m, Tensor& r) {
  dispatch_float(m.dtype(), [&]<class T>() {
    rows(m.rows(), m.cols(), InverseRoot<T>{m.data<T>(), r.data<T>(), m.cols()});
  });
}

void scale_rows_on(Backend, const Tensor& m, const Tensor& p, const Tensor& r, Tensor& scaled,
                   Tensor& s) {
  dispatch_float(m.dtype(), [&]<class T>() {
    rows(m.rows(), m.cols(),
         ScaleRow<T>{m.data<T>(), p.data<T>(), r.data<T>(), scaled.data<T>(), s.data<T>(), m.cols(),
                     p.cols()});
  });
}

void scaled_gradients_on(Backend, const ScaledRows& in, Tensor& dm, Tensor& dp) {
  dispatch_float(dm.dtype(), [&]<class T>() {
    rows(dm.rows(), dm.cols(),
         ScaledGradientRow<T>{in.r.data<T>(), in.dm_scaled.data<T>(), in.e.data<T>(),
                              in.e_sums.data<T>(), in.dt.data<T>(), in.f.data<T>(), in.ds.data<T>(),
                              in.s.data<T>(), dm.data<T>(), dp.data<T>(), dm.cols(), dp.cols()});
  });
}

}  // namespace skytape::attention
