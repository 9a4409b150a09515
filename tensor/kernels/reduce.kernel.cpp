// Sums, maxima and dot products over one axis of [outer, n, inner].
#include "tensor/kernels/reduce.hpp"

#include "tensor/core/axis.hpp"
#include "tensor/launch/columns.hpp"

namespace skytape::tensor {
namespace {

/// What entries are compared by: NaN counts as +inf, so that it shows.
template <class T> HD inline T max_key(T x) {
  return x == x ? x : std::numeric_limits<T>::infinity();
}

/// Maximum of a contiguous row and its first position.
template <class T> struct MaxRow {
  const T* x;              // [outer, n]
  T* y;                    // [outer]
  std::int32_t* position;  // [outer]
  std::int64_t n;
  template <class Team> HD void operator()(std::int64_t row, const Team& team) const {
    const T* const from = x + row * n;
    const T best = team.max(n, [=](std::int64_t i) { return max_key(from[i]); });
    const double first = team.max(n, [=](std::int64_t i) {
      return max_key(from[i]) == best ? -static_cast<double>(i)
                                      : -std::numeric_limits<double>::infinity();
    });
    if (team.leader()) {
      position[row] = static_cast<std::int32_t>(-first);
      y[row] = from[position[row]];
    }
  }
};

/// The same down the columns: a stripe of them walks through n together.
template <class T> struct MaxStripe {
  static constexpr std::int64_t kStripe = 64;
  const T* x;              // [outer, n, inner]
  T* y;                    // [outer, inner]
  std::int32_t* position;  // [outer, inner]
  std::int64_t n, inner, stripes;
  template <class Team> HD void operator()(std::int64_t task, const Team& team) const {
    const std::int64_t o = task / stripes, left = task % stripes * kStripe;
    const std::int64_t width = math::min(kStripe, inner - left);
    T* const best = y + o * inner + left;
    std::int32_t* const at = position + o * inner + left;
    const T* const from = x + o * n * inner + left;
    team.each(width, [=](std::int64_t j) {
      best[j] = from[j];
      at[j] = 0;
    });
    for (std::int64_t i = 1; i < n; ++i) {
      const T* const entry = from + i * inner;
      team.each(width, [=](std::int64_t j) {
        const T old = best[j], candidate = entry[j];
        const bool better = max_key(candidate) > max_key(old);
        best[j] = better ? candidate : old;
        at[j] = better ? static_cast<std::int32_t>(i) : at[j];
      });
    }
  }
};

template <class T> struct MaxBackward {
  const T* dy;                   // [outer, inner]
  const std::int32_t* position;  // [outer, inner]
  T* dx;                         // [outer, n, inner], zeros
  std::int64_t n, inner;
  HD void operator()(std::int64_t i) const {
    dx[(i / inner * n + position[i]) * inner + i % inner] = dy[i];
  }
};

template <class T> struct RowDot {
  const T* a;  // [rows, n]
  const T* b;  // [rows, n]
  T* y;        // [rows]
  std::int64_t n;
  template <class Team> HD void operator()(std::int64_t row, const Team& team) const {
    const T* const from_a = a + row * n;
    const T* const from_b = b + row * n;
    const T dot = team.sum(n, [=](std::int64_t i) { return from_a[i] * from_b[i]; });
    if (team.leader()) y[row] = dot;
  }
};

}  // namespace

void sum_on(Backend, const AxisView& view, const Tensor& x, Tensor& y) {
  dispatch_float(x.dtype(), [&]<class T>() {
    columns<1, T>(view.outer, view.n, view.inner, PartialEntry<T>{x.data<T>(), view.n, view.inner},
                  y.data<T>());
  });
}

void max_on(Backend, const AxisView& view, const Tensor& x, Tensor& y, Tensor& position) {
  dispatch_float(x.dtype(), [&]<class T>() {
    auto* const at = position.data<std::int32_t>();
    if (view.inner == 1) {
      rows(view.outer, view.n, MaxRow<T>{x.data<T>(), y.data<T>(), at, view.n});
    } else {
      constexpr std::int64_t kStripe = MaxStripe<T>::kStripe;
      const std::int64_t stripes = (view.inner + kStripe - 1) / kStripe;
      rows(view.outer * stripes, view.n * kStripe,
           MaxStripe<T>{x.data<T>(), y.data<T>(), at, view.n, view.inner, stripes});
    }
  });
}

void max_backward_on(Backend, const AxisView& view, const Tensor& dy, const Tensor& position,
                     Tensor& dx) {
  dispatch_float(dy.dtype(), [&]<class T>() {
    map(dy.numel(), MaxBackward<T>{dy.data<T>(), position.data<std::int32_t>(), dx.data<T>(),
                                   view.n, view.inner});
  });
}

void row_dot_on(Backend, const Tensor& a, const Tensor& b, Tensor& y) {
  dispatch_float(a.dtype(), [&]<class T>() {
    rows(a.rows(), a.cols(), RowDot<T>{a.data<T>(), b.data<T>(), y.data<T>(), a.cols()});
  });
}

}  // namespace skytape::tensor
