#include "nn/pyramid/instance_norm.hpp"

#include "tensor/kernels/elementwise.hpp"
#include "tensor/kernels/reduce.hpp"

namespace skytape::nn {
namespace {

/// Mean over the places of every channel: [B, N, E] -> [B, 1, E].
Tensor mean_of_places(const Tensor& x) {
  return tensor::affine(tensor::sum(x, 1, true), 1 / static_cast<double>(x.size(1)));
}

Tensor over_examples(const Tensor& x) {  // [B, N, E] -> [E]
  return tensor::sum(x.reshape({x.size(0) * x.size(1), x.size(2)}), 0);
}

}  // namespace

// With r = 1 / sqrt(var + eps), h = (x - mean) r and G = dy weight:
//   y = h weight + bias                                     (1)
//   dbias = sum_{b, n} dy     dweight = sum_{b, n} dy h     from (1)
//   dx = r (G - mean_n(G) - h mean_n(G h))                  mean and var depend on every place
Var instance_norm(Var x, Var weight, Var bias) {
  using namespace tensor;
  const Tensor xv = x.value(), wv = weight.value(), bv = bias.value();
  require_same_kind("instance_norm", {&xv, &wv, &bv});
  ENSURE(xv.rank() == 3 && xv.size(1) >= 1 && wv.shape() == Shape({xv.size(2)}) &&
             bv.shape() == wv.shape(),
         "instance_norm: expected x [B, N, E] with places, weight and bias [E], got x ", xv,
         ", weight ", wv, ", bias ", bv);
  const Tensor centred = subtract(xv, mean_of_places(xv));                            // [B, N, E]
  const Tensor variance = mean_of_places(multiply(centred, centred));                 // [B, 1, E]
  const Tensor root = unary(Unary::sqrt, affine(variance, 1, kInstanceNormEpsilon));  // [B, 1, E]
  const Tensor inverse = unary(Unary::reciprocal, root);                              // [B, 1, E]
  const Tensor h = multiply(centred, inverse);                                        // [B, N, E]
  return record("instance_norm", {x, weight, bias}, add(multiply(h, wv), bv),
                [h, inverse, wv](const Tensor& dy, Grads& g) {
                  if (g.needs(2)) g.add(2, over_examples(dy));
                  if (g.needs(1)) g.add(1, over_examples(multiply(dy, h)));
                  if (!g.needs(0)) return;
                  const Tensor along = multiply(dy, wv);                    // [B, N, E]: G
                  const Tensor level = mean_of_places(along);               // [B, 1, E]
                  const Tensor slope = mean_of_places(multiply(along, h));  // [B, 1, E]
                  g.add(0, multiply(subtract(subtract(along, level), multiply(h, slope)), inverse));
                });
}

}  // namespace skytape::nn
