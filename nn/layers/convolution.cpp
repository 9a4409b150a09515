#include "nn/layers/convolution.hpp"

#include "nn/layers/convolution_plan.hpp"
#include "tensor/core/on_device.hpp"

namespace skytape::nn {
namespace {

Tensor convolution_weight(const ConvolutionPlan& plan, const Tensor& x, const Tensor& mask,
                          const Tensor& dy, const Tensor& weight) {
  Tensor dweight = empty_like(weight);  // [R T, E]
  on_device(x.device(), [&](auto tag) { convolution_weight_on(tag, plan, x, mask, dy, dweight); });
  return dweight;
}

/// Checks x [B, N, E] and weight [R T, E].
ConvolutionPlan plan_of(const Tensor& x, const Tensor& weight, const Window& window) {
  require_same_kind("add_convolution", {&x, &weight});
  ENSURE(window.width % 2 == 1 && window.height % 2 == 1 && window.columns >= 0,
         "add_convolution: expected an odd window, got ", window.height, " by ", window.width);
  ENSURE(x.rank() == 3 && weight.rank() == 2 && weight.size(0) == window.width * window.height &&
             weight.size(1) == x.size(2),
         "add_convolution: expected x [B, N, E] and weight [", window.width * window.height,
         ", E], got x ", x, ", weight ", weight);
  const std::int64_t n = x.size(1);
  const bool picture = window.columns > 0 && window.columns < n;
  return {n, x.size(2), picture ? window.columns : n, window.width, window.height};
}

}  // namespace

// With s the step from a position to what a tap reads (the same for every position, zeros outside),
// c the sum over taps, and dc = drop(dy):
//   c[n] = sum_taps w[tap] (mask x)[n + s(tap)]     dx[m] = mask[m] sum_taps w[tap] dc[m - s(tap)]
//   dw[tap] = sum_{b, n} dc[n] (mask x)[n + s(tap)]
Var add_convolution(Var residual, Var x, Var weight, const Tensor& mask, const Window& window,
                    const Dropout& dropout) {
  const Tensor r = residual.value(), xv = x.value(), wv = weight.value();
  const ConvolutionPlan plan = plan_of(xv, wv, window);
  require_same_kind("add_convolution", {&xv, &r, &mask});
  ENSURE(r.shape() == xv.shape() && mask.shape() == Shape({xv.size(0), xv.size(1)}),
         "add_convolution: expected a residual [B, N, E] and a mask [B, N] for x ", xv, ", got ", r,
         ", ", mask);
  const tensor::RowDropout drop = tensor::row_dropout("add_convolution", xv, xv.size(2), dropout);
  Tensor y = empty_like(xv);  // [B, N, E]
  on_device(y.device(), [&](auto tag) { add_convolution_on(tag, plan, r, xv, mask, wv, drop, y); });
  return record("add_convolution", {residual, x, weight}, y,
                [plan, xv, wv, mask, dropout](const Tensor& dy, Grads& g) {
                  g.add(0, dy);
                  const Tensor dc = tensor::dropout(dy, dropout);  // [B, N, E]
                  Tensor dx = empty_like(xv);
                  on_device(dx.device(),
                            [&](auto tag) { masked_adjoint_on(tag, plan, dc, mask, wv, dx); });
                  g.add(1, dx);
                  g.add(2, convolution_weight(plan, xv, mask, dc, wv));
                });
}

}  // namespace skytape::nn
