#include "nn/layers/pair_features.hpp"

#include <vector>

#include "autograd/initial_values.hpp"
#include "autograd/ops.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/kernels/reduce.hpp"
#include "tensor/movement/layout.hpp"

namespace skytape::nn {
namespace {

constexpr double kDecay = 0.9;  // of the mean: it follows encodings that training moves

/// Rows brought to length 1, [B, E]; 0 stays 0.
Var unit_rows(Var x) {
  constexpr double kTiny = 1e-12;  // added under the root
  return x / sqrt(affine(sum(x * x, 1, true), 1, kTiny));
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
                  g.add(1, tensor::concat({tensor::sum(sample, 0), count}, 0));
                });
}

PairFeatures::PairFeatures(ParameterStore& store, std::int64_t width, bool cosine) : width_(width) {
  if (cosine) {
    mean_ = &store.add_average("seq_classifer.pair_centre", {width + 1}, constant_init(0), kDecay);
  }
}

Var PairFeatures::operator()(Var a, Var b) const {
  if (mean_ != nullptr) {
    const Var mean = a.tape().parameter(*mean_);
    a = unit_rows(centred(a, mean));
    b = unit_rows(centred(b, mean));
  }
  const Var product = a * b;
  std::vector<Var> parts = {a, b, product, a - b};
  if (mean_ != nullptr) {
    constexpr double kScale = 4;  // cosines of unlike texts lie within 0.2 of 0
    parts.push_back(affine(sum(product, 1, true), kScale));
  }
  return concat(parts, 1);
}

}  // namespace skytape::nn
