// Depthwise convolution over positions with the mask, the residual and the dropout around it, its
// adjoint, and the gradient of its weights.
#include "nn/layers/convolution_plan.hpp"
#include "tensor/launch/columns.hpp"
#include "tensor/launch/math.hpp"
#include "tensor/launch/narrow_rows.hpp"
#include "tensor/random/dropout.hpp"
#include "tensor/random/philox.hpp"

namespace skytape::nn {
namespace {

/// residual + drop(conv(mask x)).
template <class T> struct Surrounded {
  const T* mask;      // [B, N]
  const T* residual;  // [B, N, E]
  tensor::RowDropout dropout;
  T scale;  // of kept entries
  HD T read(std::int64_t row, T x) const { return mask[row] * x; }
  HD T written(std::int64_t row, std::int64_t e, T sum) const {
    T factor = 1;
    if (dropout.threshold > 0) {
      const std::uint32_t bits = philox::dropout_bits(dropout.key, philox::step_of(dropout.step),
                                                      dropout.number(row) * dropout.width + e);
      factor = bits >= dropout.threshold ? scale : T(0);
    }
    return residual[row * dropout.width + e] + factor * sum;
  }
};

/// mask conv(dy), the gradient of the x that Surrounded reads.
template <class T> struct Masked {
  const T* mask;  // [B, N]
  HD T read(std::int64_t, T dy) const { return dy; }
  HD T written(std::int64_t row, std::int64_t, T sum) const { return mask[row] * sum; }
};

template <class T, class Around> struct ConvolveRow {
  const T* x;       // [B, N, E]
  const T* weight;  // [R T, E]
  T* y;             // [B, N, E]
  ConvolutionPlan plan;
  bool adjoint;
  Around around;

  template <class Team> HD void operator()(std::int64_t row, const Team& team) const {
    const std::int64_t n = row % plan.positions, line = n / plan.columns, column = n % plan.columns;
    const std::int64_t above = plan.tap_rows / 2, left = plan.taps / 2, e_count = plan.width;
    // Taps of one line of the window and of the picture are consecutive in memory.
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
      const std::int64_t from_row = row + (r - above) * plan.columns - left;
      const T* const from = x + from_row * e_count;
      const Around within = around;
      // The adjoint reads the same rows with the taps reversed.
      const std::int64_t tap = r * plan.taps, last = plan.tap_rows * plan.taps - 1;
      const T* const start = weight + (adjoint ? last - tap : tap) * e_count;
      const std::int64_t step = adjoint ? -e_count : e_count;
      add_terms(team, e_count, to, first, end, [=](std::int64_t t, std::int64_t e) {
        return start[t * step + e] * within.read(from_row + t, from[t * e_count + e]);
      });
    }
    team.each(e_count, [=, this](std::int64_t e) { to[e] = around.written(row, e, to[e]); });
  }
};

/// Summands of dweight[tap, e]: dy[b, n, e] times what the tap reads at n.
template <class T> struct WeightEntry {
  const T* x;     // [B, N, E]
  const T* mask;  // [B, N], of x
  const T* dy;    // [B, N, E]
  ConvolutionPlan plan;

  HD T operator()(int, std::int64_t tap, std::int64_t i, std::int64_t e) const {
    const std::int64_t n = i % plan.positions;
    const std::int64_t column = n % plan.columns + tap % plan.taps - plan.taps / 2;
    const std::int64_t step =
        (tap / plan.taps - plan.tap_rows / 2) * plan.columns + tap % plan.taps - plan.taps / 2;
    const bool outside =
        column < 0 || column >= plan.columns || n + step < 0 || n + step >= plan.positions;
    if (outside) return T(0);
    return dy[i * plan.width + e] * (mask[i + step] * x[(i + step) * plan.width + e]);
  }
  HD T operator()(int k, std::int64_t tap, std::int64_t i) const { return (*this)(k, tap, i, 0); }
};

}  // namespace

void add_convolution_on(Backend, const ConvolutionPlan& plan, const Tensor& residual,
                        const Tensor& x, const Tensor& mask, const Tensor& weight,
                        const tensor::RowDropout& dropout, Tensor& y) {
  dispatch_float(x.dtype(), [&]<class T>() {
    const Surrounded<T> around{mask.data<T>(), residual.data<T>(), dropout,
                               static_cast<T>(tensor::dropout_scale(dropout.threshold))};
    rows(x.rows(), x.cols(),
         ConvolveRow<T, Surrounded<T>>{x.data<T>(), weight.data<T>(), y.data<T>(), plan, false,
                                       around});
  });
}

void masked_adjoint_on(Backend, const ConvolutionPlan& plan, const Tensor& dy, const Tensor& mask,
                       const Tensor& weight, Tensor& dx) {
  dispatch_float(dy.dtype(), [&]<class T>() {
    rows(dy.rows(), dy.cols(),
         ConvolveRow<T, Masked<T>>{
             dy.data<T>(), weight.data<T>(), dx.data<T>(), plan, true, {mask.data<T>()}});
  });
}

void convolution_weight_on(Backend, const ConvolutionPlan& plan, const Tensor& x,
                           const Tensor& mask, const Tensor& dy, Tensor& dweight) {
  dispatch_float(x.dtype(), [&]<class T>() {
    columns<1, T>(dweight.size(0), x.rows(), x.cols(),
                  WeightEntry<T>{x.data<T>(), mask.data<T>(), dy.data<T>(), plan},
                  dweight.data<T>());
  });
}

}  // namespace skytape::nn
