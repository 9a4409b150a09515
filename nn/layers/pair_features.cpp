#include "nn/layers/pair_features.hpp"

#include <vector>

#include "autograd/ops.hpp"

namespace skytape::nn {
namespace {

/// Of the rows of u and v, [B, E] -> [B, 1]; 0 where one of them is zero.
Var cosine(Var u, Var v) {
  constexpr double kTiny = 1e-6;  // added under the root: encodings have lengths of about 1 to E
  const auto dot = [](Var x, Var y) { return sum(x * y, 1, true); };
  return dot(u, v) / sqrt(affine(dot(u, u) * dot(v, v), 1, kTiny));
}

}  // namespace

PairFeatures::PairFeatures(ParameterStore& store, std::int64_t width, bool cosine) : width_(width) {
  if (cosine) centre_ = &store.add("seq_classifer.pair_centre", {width}, constant_init(0));
}

Var PairFeatures::operator()(Var a, Var b) const {
  std::vector<Var> parts = {a, b, a * b, a - b};
  if (centre_ != nullptr) {
    constexpr double kScale = 16;  // beside E products that are each about as large as a channel
    constexpr double kPace = 10;   // the centre is far from 0, and Adam's steps are all alike
    const Var c = affine(a.tape().parameter(*centre_), kPace);
    parts.push_back(affine(cosine(a - c, b - c), kScale));
  }
  return concat(parts, 1);
}

}  // namespace skytape::nn
