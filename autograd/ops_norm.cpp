#include "autograd/ops.hpp"
#include "tensor/norm/layer_norm.hpp"

namespace skytape {

NormBeside layer_norm_beside(Var x, Var weight, Var bias, int readers) {
  if (x.value().device() == Device::cuda) {
    return fused_layer_norm_beside(x, weight, bias, readers);
  }
  return {x, std::vector<Var>(static_cast<std::size_t>(readers), layer_norm(x, weight, bias))};
}

NormBeside fused_layer_norm_beside(Var x, Var weight, Var bias, int readers) {
  require_same_kind("layer_norm_beside", {&x.value(), &weight.value(), &bias.value()});
  ENSURE(readers == 1 || readers == 2, "layer_norm_beside: expected 1 or 2 readers, got ", readers);
  const tensor::LayerNormForward f = tensor::layer_norm(x.value(), weight.value(), bias.value());
  std::vector<Tensor> values = {x.value(), f.y};
  if (readers == 2) values.push_back(f.y);
  const std::vector<Var> outputs = record_several(
      "layer_norm_beside", {x, weight, bias}, values,
      [x = x.value(), w = weight.value(), mean = f.mean, inv_std = f.inv_std](
          std::vector<Tensor>& d, Grads& g) {
        d.resize(3);  // of x, y and y, [..., E]
        if (!d[1].defined()) std::swap(d[1], d[2]);
        if (!d[1].defined()) return g.add(0, d[0]);  // nobody read y
        const auto found = tensor::layer_norm_backward(x, w, mean, inv_std, d[1], d[2], d[0]);
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
