#include <array>
#include <utility>

#include "autograd/ops.hpp"
#include "tensor/norm/layer_norm.hpp"
#include "tensor/norm/norm_pool.hpp"

namespace skytape {

NormBeside layer_norm_beside(Var x, Var weight, Var bias, int readers) {
  require_same_kind("layer_norm_beside", {&x.value(), &weight.value(), &bias.value()});
  ENSURE(readers == 1 || readers == 2, "layer_norm_beside: expected 1 or 2 readers, got ", readers);
  const tensor::LayerNormForward f = tensor::layer_norm(x.value(), weight.value(), bias.value());
  std::vector<Tensor> values = {x.value(), f.y};
  if (readers == 2) values.push_back(f.y);
  const std::array<Var, 3> inputs = {x, weight, bias};
  const std::vector<Var> outputs = x.tape().record_several(
      "layer_norm_beside", inputs, values,
      [x = x.value(), w = weight.value(), mean = f.mean, inv_std = f.inv_std](
          std::span<const Tensor> d, Grads& g) {
        const Tensor dx = d[0];                                   // [..., E]
        Tensor dy = d[1], also = d.size() > 2 ? d[2] : Tensor();  // [..., E]
        if (!dy.defined()) std::swap(dy, also);
        if (!dy.defined()) return g.add(0, dx);  // nobody read y
        const auto found = tensor::layer_norm_backward(x, w, mean, inv_std, dy, also, dx);
        g.add(0, found.dx);
        g.add(1, found.dweight);
        g.add(2, found.dbias);
      });
  return {outputs[0], {outputs.begin() + 1, outputs.end()}};
}

Var norm_pool(Var x, Var weight, Var bias, const Tensor& mask, const tensor::TokenWeights& rule) {
  const tensor::NormPool f = tensor::norm_pool(x.value(), weight.value(), bias.value(), mask, rule);
  return record("norm_pool", {x, weight, bias}, f.pooled,
                [x = x.value(), w = weight.value(), mask, rule, f](const Tensor& dy, Grads& g) {
                  const auto d = tensor::norm_pool_backward(x, w, mask, rule, f, dy);
                  g.add(0, d.dx);
                  g.add(1, d.dweight);
                  g.add(2, d.dbias);
                });
}

}  // namespace skytape
