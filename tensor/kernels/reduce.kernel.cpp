// Sums, maxima and dot products over one axis of [outer, n, inner].
#include "tensor/kernels/reduce.hpp"

#include "tensor/kernels/reduce_plan.hpp"
#include "tensor/launch/columns.hpp"
#include "tensor/launch/narrow_rows.hpp"

namespace skytape::tensor {
namespace {

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
      // clang's maximum of entries that all are -inf is the lowest finite number: none is equal to it.
      position[row] = first > -static_cast<double>(n) ? static_cast<std::int32_t>(-first) : 0;
      y[row] = from[position[row]];
    }
  }
};

template <class T> struct MaxBackward {
  const T* dy;                   // [outer, inner]
  const std::int32_t* position;  // [outer, inner]
  T* dx;                         // [outer, n, inner], zeros
  std::int64_t n, inner;
  HD void operator()(std::int64_t i) const {
    const std::int64_t at = position[i];  // the range is checked on the CPU
    if (0 <= at && at < n) dx[(i / inner * n + at) * inner + i % inner] = dy[i];
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
    const T dot = sum_over(
        team, n, [](T s, T t) { return s * t; }, from_a, from_b);
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

void max_of_rows_on(Backend, const AxisView& view, const Tensor& x, Tensor& y, Tensor& position) {
  dispatch_float(x.dtype(), [&]<class T>() {
    rows(view.outer, view.n,
         MaxRow<T>{x.data<T>(), y.data<T>(), position.data<std::int32_t>(), view.n});
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
    narrow_rows(a.rows(), a.cols(), RowDot<T>{a.data<T>(), b.data<T>(), y.data<T>(), a.cols()});
  });
}

}  // namespace skytape::tensor
