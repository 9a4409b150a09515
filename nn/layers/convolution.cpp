#include "nn/layers/convolution.hpp"

#include "nn/layers/convolution_plan.hpp"

namespace skytape::nn {
namespace {

Tensor convolve(const Tensor& x, const Tensor& weight, Taps taps) {
  Tensor y = empty_like(x);  // [B, N, E]
  on_device(x.device(), [&](auto tag) { convolve_on(tag, x, weight, taps, y); });
  return y;
}

Tensor convolution_weight(const Tensor& x, const Tensor& dy, const Tensor& weight) {
  Tensor dweight = empty_like(weight);  // [T, E]
  on_device(x.device(), [&](auto tag) { convolution_weight_on(tag, x, dy, dweight); });
  return dweight;
}

}  // namespace

// With the middle tap c = (T - 1) / 2 and zeros outside:
//   y[n] = sum_t w[t] x[n + t - c]     dx[m] = sum_t w[t] dy[m - t + c]
//   dw[t] = sum_{b, n} dy[n] x[n + t - c]
Var depthwise_convolution(Var x, Var weight) {
  const Tensor xv = x.value(), wv = weight.value();
  require_same_kind("depthwise_convolution", {&xv, &wv});
  ENSURE(xv.rank() == 3 && wv.rank() == 2 && wv.size(0) % 2 == 1 && wv.size(1) == xv.size(2),
         "depthwise_convolution: expected x [B, N, E] and weight [odd T, E], got x ", xv,
         ", weight ", wv);
  return record("depthwise_convolution", {x, weight}, convolve(xv, wv, Taps::forward),
                [xv, wv](const Tensor& dy, Grads& g) {
                  if (g.needs(0)) g.add(0, convolve(dy, wv, Taps::adjoint));
                  if (g.needs(1)) g.add(1, convolution_weight(xv, dy, wv));
                });
}

}  // namespace skytape::nn
