#include "nn/layers/mlp.hpp"

#include "autograd/ops.hpp"

namespace skytape::nn {

// The values between x and y are not saved, but for 32 bytes a token: computing them again takes
// less time than reading them.
Var fused_mlp(const MlpVars& v, double norm_factor, const Dropout& hidden, const Dropout& output) {
  const tensor::MlpWeights w{v.norm_weight.value(), v.norm_bias.value(), norm_factor,
                             v.in_weight.value(),   v.in_bias.value(),   v.out_weight.value(),
                             v.out_bias.value()};
  const auto [y, facts] = tensor::mlp(v.x.value(), w, hidden, output);
  return record("mlp",
                {v.x, v.norm_weight, v.norm_bias, v.in_weight, v.in_bias, v.out_weight, v.out_bias},
                y, [x = v.x.value(), w, hidden, output, facts = facts](const Tensor& dy, Grads& g) {
                  const auto d = tensor::mlp_backward(x, w, hidden, output, facts, dy);
                  g.add(0, d.dx);
                  g.add(1, d.dnorm_weight);
                  g.add(2, d.dnorm_bias);
                  g.add(3, d.din_weight);
                  g.add(4, d.din_bias);
                  g.add(5, d.dout_weight);
                  g.add(6, d.dout_bias);
                });
}

Var mlp_block(Var x, const LayerNorm& norm, const Linear& in, const Linear& out,
              const Dropout& hidden, const Dropout& output) {
  Tape& tape = x.tape();
  const tensor::MlpWeights w{norm.weight->value, norm.bias->value, norm.factor,
                             in.weight->value,   in.bias->value,   out.weight->value,
                             out.bias->value};
  if (tensor::mlp_is_one_kernel(x.value(), w)) {
    return fused_mlp(
        {x, tape.parameter(*norm.weight), tape.parameter(*norm.bias), tape.parameter(*in.weight),
         tape.parameter(*in.bias), tape.parameter(*out.weight), tape.parameter(*out.bias)},
        norm.factor, hidden, output);
  }
  const Var u = bias_gelu_dropout(in.without_bias(norm(x)), tape.parameter(*in.bias), hidden);
  return add_dropout(x, out(u), output);
}

}  // namespace skytape::nn
