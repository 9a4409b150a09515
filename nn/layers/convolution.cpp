#include "nn/layers/convolution.hpp"

#include "nn/layers/convolution_plan.hpp"

namespace skytape::nn {
namespace {

Tensor convolve(const ConvolutionPlan& plan, const Tensor& x, const Tensor& weight, Taps taps) {
  Tensor y = empty_like(x);  // [B, N, E]
  on_device(x.device(), [&](auto tag) { convolve_on(tag, plan, x, weight, taps, y); });
  return y;
}

Tensor convolution_weight(const ConvolutionPlan& plan, const Tensor& x, const Tensor& dy,
                          const Tensor& weight) {
  Tensor dweight = empty_like(weight);  // [R T, E]
  on_device(x.device(), [&](auto tag) { convolution_weight_on(tag, plan, x, dy, dweight); });
  return dweight;
}

}  // namespace

// With s the step from a position to what a tap reads (the same for every position, zeros outside):
//   y[n] = sum_taps w[tap] x[n + s(tap)]     dx[m] = sum_taps w[tap] dy[m - s(tap)]
//   dw[tap] = sum_{b, n} dy[n] x[n + s(tap)]
Var depthwise_convolution(Var x, Var weight, const Window& window) {
  const Tensor xv = x.value(), wv = weight.value();
  require_same_kind("depthwise_convolution", {&xv, &wv});
  ENSURE(window.width % 2 == 1 && window.height % 2 == 1 && window.columns >= 0,
         "depthwise_convolution: expected an odd window, got ", window.height, " by ",
         window.width);
  ENSURE(xv.rank() == 3 && wv.rank() == 2 && wv.size(0) == window.width * window.height &&
             wv.size(1) == xv.size(2),
         "depthwise_convolution: expected x [B, N, E] and weight [", window.width * window.height,
         ", E], got x ", xv, ", weight ", wv);
  const std::int64_t n = xv.size(1);
  const bool picture = window.columns > 0 && window.columns < n;
  const ConvolutionPlan plan{n, xv.size(2), picture ? window.columns : n, window.width,
                             window.height};
  return record("depthwise_convolution", {x, weight}, convolve(plan, xv, wv, Taps::forward),
                [plan, xv, wv](const Tensor& dy, Grads& g) {
                  if (g.needs(0)) g.add(0, convolve(plan, dy, wv, Taps::adjoint));
                  if (g.needs(1)) g.add(1, convolution_weight(plan, xv, dy, wv));
                });
}

}  // namespace skytape::nn
