#include "nn/layers/pair_features.hpp"

#include <array>
#include <vector>

#include "autograd/ops.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/kernels/reduce.hpp"
#include "tensor/movement/layout.hpp"

namespace skytape::nn {
namespace {

constexpr double kDecay = 0.9;  // of the mean: it follows encodings that training moves

/// Of the rows of u and v, [B, E] -> [B, 1]; 0 where one of them is zero.
Var cosine(Var u, Var v) {
  constexpr double kTiny = 1e-12;  // added under the root
  const auto dot = [](Var x, Var y) { return sum(x * y, 1, true); };
  return dot(u, v) / sqrt(affine(dot(u, u) * dot(v, v), 1, kTiny));
}

}  // namespace

Var centred(Var x, Var mean) {
  require_same_kind("centred", {&x.value(), &mean.value()});
  ENSURE(x.shape().rank() == 2 && mean.shape() == Shape({x.size(1) + 1}),
         "centred: expected x [B, E] and a mean [E + 1], got x ", x.value(), ", mean ",
         mean.value());
  const std::int64_t width = x.size(1);
  const Tensor number = tensor::affine(mean.value().slice(width, width + 1), 1, 1e-12);  // [1]
  const Tensor centre = tensor::divide(mean.value().slice(0, width), number);            // [E]
  return record("centred", {x, mean}, tensor::subtract(x.value(), centre),
                [sample = x.value()](const Tensor& dy, Grads& g) {
                  g.add(0, dy);
                  if (!g.needs(1)) return;
                  const Tensor count = Tensor::full({1}, static_cast<double>(sample.size(0)),
                                                    sample.dtype(), sample.device());
                  const std::array<Tensor, 2> sums = {tensor::sum(sample, 0), count};
                  g.add(1, tensor::concat(sums, 0));
                });
}

PairFeatures::PairFeatures(ParameterStore& store, std::int64_t width, bool cosine) : width_(width) {
  if (cosine) {
    mean_ = &store.add_average("seq_classifer.pair_mean", {width + 1}, constant_init(0), kDecay);
  }
}

Var PairFeatures::operator()(Var a, Var b) const {
  std::vector<Var> parts = {a, b, a * b, a - b};
  if (mean_ != nullptr) {
    constexpr double kScale = 4;  // cosines of unlike texts lie within 0.2 of 0
    const Var mean = a.tape().parameter(*mean_);
    parts.push_back(affine(cosine(centred(a, mean), centred(b, mean)), kScale));
  }
  return concat(parts, 1);
}

}  // namespace skytape::nn
