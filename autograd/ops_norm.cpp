#include <memory>

#include "autograd/ops.hpp"
#include "tensor/norm/layer_norm.hpp"

namespace skytape {

NormBeside layer_norm_beside(Var x, Var weight, Var bias, int readers) {
  if (x.value().device() == Device::cuda) {
    return layer_norm_beside_at_once(x, weight, bias, readers);
  }
  return {x, std::vector<Var>(static_cast<std::size_t>(readers), layer_norm(x, weight, bias))};
}

// A node has one output: as with project_heads, the outputs hang on a node that holds nothing, [0], and
// leave their gradients for its turn, which comes when all of theirs are over.
NormBeside layer_norm_beside_at_once(Var x, Var weight, Var bias, int readers) {
  require_same_kind("layer_norm_beside", {&x.value(), &weight.value(), &bias.value()});
  ENSURE(readers == 1 || readers == 2, "layer_norm_beside: expected 1 or 2 readers, got ", readers);
  const tensor::LayerNormForward f = tensor::layer_norm(x.value(), weight.value(), bias.value());
  const auto left = std::make_shared<std::vector<Tensor>>(3);  // gradients of y, y and x, [..., E]
  const Tensor nothing = empty_like(f.y, {0});
  const Var all = record("layer_norm_beside", {x, weight, bias}, nothing,
                         [left, x = x.value(), w = weight.value(), mean = f.mean,
                          inv_std = f.inv_std](const Tensor&, Grads& g) {
                           std::vector<Tensor>& d = *left;
                           if (!d[0].defined()) std::swap(d[0], d[1]);
                           if (!d[0].defined()) return g.add(0, d[2]);  // nobody read y
                           const auto found =
                               tensor::layer_norm_backward(x, w, mean, inv_std, d[0], d[1], d[2]);
                           g.add(0, found.dx);
                           g.add(1, found.dweight);
                           g.add(2, found.dbias);
                         });
  const auto output = [&](const Tensor& value, std::size_t place) {
    return record("layer_norm_beside", {all}, value,
                  [left, place, nothing](const Tensor& dy, Grads& g) {
                    (*left)[place] = dy;
                    g.add(0, nothing);  // its turn comes
                  });
  };
  NormBeside result{output(x.value(), 2), {}};
  for (int r = 0; r < readers; ++r) {
    result.y.push_back(output(f.y, static_cast<std::size_t>(r)));
  }
  return result;
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
