// Depthwise convolution over positions, its adjoint, and the gradient of its weights.
#include "nn/layers/convolution_plan.hpp"
#include "tensor/launch/columns.hpp"
#include "tensor/launch/launch.hpp"
#include "tensor/launch/math.hpp"

namespace skytape::nn {
namespace {

template <class T> struct ConvolveRow {
  const T* x;       // [B, N, E]
  const T* weight;  // [R T, E]
  T* y;             // [B, N, E]
  ConvolutionPlan plan;
  bool adjoint;

  template <class Team> HD void operator()(std::int64_t row, const Team& team) const {
    const std::int64_t n = row % plan.positions, line = n / plan.columns, column = n % plan.columns;
    const std::int64_t above = plan.tap_rows / 2, left = plan.taps / 2, e_count = plan.width;
    // What lies in the same line of the window and of the picture lies in a row in memory.
    const std::int64_t first = math::max(std::int64_t{0}, left - column);
    const std::int64_t line_end = math::min(plan.columns, plan.positions - line * plan.columns);
    T* const to = y + row * e_count;
    team.each(e_count, [=](std::int64_t e) { to[e] = 0; });
    for (std::int64_t r = 0; r < plan.tap_rows; ++r) {
      const std::int64_t other = line + r - above;  // the line that is read
      if (other < 0 || other * plan.columns >= plan.positions) continue;
      const std::int64_t length =
          r == above ? line_end : math::min(plan.columns, plan.positions - other * plan.columns);
      const std::int64_t end = math::min(plan.taps, length - column + left);
      const T* const from = x + (row + (r - above) * plan.columns - left) * e_count;
      // The adjoint reads the same rows with the taps reversed.
      const std::int64_t tap = r * plan.taps, last = plan.tap_rows * plan.taps - 1;
      const T* const start = weight + (adjoint ? last - tap : tap) * e_count;
      const std::int64_t step = adjoint ? -e_count : e_count;
      team.each(e_count, [=](std::int64_t e) {
        T sum = to[e];
        for (std::int64_t t = first; t < end; ++t) {
          sum += start[t * step + e] * from[t * e_count + e];
        }
        to[e] = sum;
      });
    }
  }
};

/// Summands of dweight[tap, e]: dy[b, n, e] times what the tap reads at n.
template <class T> struct WeightEntry {
  const T* x;   // [B, N, E]
  const T* dy;  // [B, N, E]
  ConvolutionPlan plan;

  HD T operator()(int, std::int64_t tap, std::int64_t i, std::int64_t e) const {
    const std::int64_t n = i % plan.positions;
    const std::int64_t column = n % plan.columns + tap % plan.taps - plan.taps / 2;
    const std::int64_t step =
        (tap / plan.taps - plan.tap_rows / 2) * plan.columns + tap % plan.taps - plan.taps / 2;
    const bool outside =
        column < 0 || column >= plan.columns || n + step < 0 || n + step >= plan.positions;
    return outside ? T(0) : dy[i * plan.width + e] * x[(i + step) * plan.width + e];
  }
  HD T operator()(int k, std::int64_t tap, std::int64_t i) const { return (*this)(k, tap, i, 0); }
};

}  // namespace

void convolve_on(Backend, const ConvolutionPlan& plan, const Tensor& x, const Tensor& weight,
                 Taps taps, Tensor& y) {
  dispatch_float(x.dtype(), [&]<class T>() {
    rows(x.rows(), x.cols(),
         ConvolveRow<T>{x.data<T>(), weight.data<T>(), y.data<T>(), plan, taps == Taps::adjoint});
  });
}

void convolution_weight_on(Backend, const ConvolutionPlan& plan, const Tensor& x, const Tensor& dy,
                           Tensor& dweight) {
  dispatch_float(x.dtype(), [&]<class T>() {
    columns<1, T>(dweight.size(0), x.rows(), x.cols(),
                  WeightEntry<T>{x.data<T>(), dy.data<T>(), plan}, dweight.data<T>());
  });
}

}  // namespace skytape::nn
