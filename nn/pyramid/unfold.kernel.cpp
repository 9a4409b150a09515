// Windows of a picture as rows, and their adjoint: nobody but the owner of a row writes it.
#include "nn/pyramid/unfold.hpp"
#include "tensor/launch/launch.hpp"

namespace skytape::nn {
namespace {

/// The windows of one place of the picture, tap by tap.
template <class T> struct UnfoldRow {
  const T* x;  // [B, N, E]
  T* y;        // [B, M, side² E]
  UnfoldPlan plan;

  template <class Team> HD void operator()(std::int64_t window, const Team& team) const {
    const std::int64_t e_count = plan.width, windows = plan.out_rows * plan.out_columns;
    const std::int64_t b = window / windows, m = window % windows;
    const std::int64_t row = m / plan.out_columns * plan.stride - plan.side / 2;
    const std::int64_t column = m % plan.out_columns * plan.stride - plan.side / 2;
    for (std::int64_t tap = 0; tap < plan.side * plan.side; ++tap) {
      const std::int64_t r = row + tap / plan.side, c = column + tap % plan.side;
      const bool inside = r >= 0 && r < plan.rows && c >= 0 && c < plan.columns;
      const std::int64_t place = inside ? (b * plan.rows + r) * plan.columns + c : 0;
      const T* const from = x + place * e_count;
      T* const to = y + (window * plan.side * plan.side + tap) * e_count;
      team.each(e_count, [=](std::int64_t e) { to[e] = inside ? from[e] : T(0); });
    }
  }
};

/// Adds up, tap by tap, the parts of a place in all windows that hold it.
template <class T> struct FoldRow {
  const T* dy;  // [B, M, side² E]
  T* dx;        // [B, N, E]
  UnfoldPlan plan;

  template <class Team> HD void operator()(std::int64_t place, const Team& team) const {
    const std::int64_t e_count = plan.width, places = plan.rows * plan.columns;
    const std::int64_t b = place / places, row = place % places / plan.columns;
    const std::int64_t column = place % plan.columns, taps = plan.side * plan.side;
    T* const to = dx + place * e_count;
    team.each(e_count, [=](std::int64_t e) { to[e] = 0; });
    for (std::int64_t tap = 0; tap < taps; ++tap) {
      // The window's centre, which only every stride-th place is.
      const std::int64_t r = row + plan.side / 2 - tap / plan.side;
      const std::int64_t c = column + plan.side / 2 - tap % plan.side;
      if (r < 0 || c < 0 || r % plan.stride != 0 || c % plan.stride != 0) continue;
      const std::int64_t i = r / plan.stride, j = c / plan.stride;
      if (i >= plan.out_rows || j >= plan.out_columns) continue;
      const std::int64_t window = (b * plan.out_rows + i) * plan.out_columns + j;
      const T* const from = dy + (window * taps + tap) * e_count;
      team.each(e_count, [=](std::int64_t e) { to[e] += from[e]; });
    }
  }
};

}  // namespace

void unfold_on(Backend, const UnfoldPlan& plan, const Tensor& x, Tensor& y) {
  dispatch_float(x.dtype(), [&]<class T>() {
    rows(y.size(0) * y.size(1), y.size(2), UnfoldRow<T>{x.data<T>(), y.data<T>(), plan});
  });
}

void fold_on(Backend, const UnfoldPlan& plan, const Tensor& dy, Tensor& dx) {
  dispatch_float(dy.dtype(), [&]<class T>() {
    rows(dx.rows(), dx.cols(), FoldRow<T>{dy.data<T>(), dx.data<T>(), plan});
  });
}

}  // namespace skytape::nn
