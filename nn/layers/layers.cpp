#include "nn/layers/layers.hpp"

#include <cmath>

#include "autograd/initial_values.hpp"
#include "autograd/ops.hpp"
#include "nn/config/model_config.hpp"

namespace skytape::nn {

Linear::Linear(ParameterStore& store, const std::string& name, std::int64_t in, std::int64_t out,
               double scale) {
  const double bound = scale / std::sqrt(static_cast<double>(in));
  weight = &store.add(name + ".weight", {out, in}, uniform_init(bound));
  bias = &store.add(name + ".bias", {out}, uniform_init(bound));
}

Var Linear::operator()(Var x) const {
  return linear(x, x.tape().parameter(*weight), x.tape().parameter(*bias));
}

LayerNorm::LayerNorm(ParameterStore& store, const std::string& name, std::int64_t width,
                     double epsilon)
    : factor(std::sqrt(tensor::kLayerNormEpsilon / epsilon)) {
  weight = &store.add(name + ".weight", {width}, constant_init(1));
  bias = &store.add(name + ".bias", {width}, constant_init(0));
}

Var LayerNorm::operator()(Var x) const {
  return layer_norm(factor == 1 ? x : affine(x, factor), x.tape().parameter(*weight),
                    x.tape().parameter(*bias));
}

NormBeside LayerNorm::beside(Var x, int readers) const {
  if (factor != 1) return {x, std::vector<Var>(static_cast<std::size_t>(readers), (*this)(x))};
  return layer_norm_beside(x, x.tape().parameter(*weight), x.tape().parameter(*bias), readers);
}

}  // namespace skytape::nn
