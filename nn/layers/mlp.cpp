#include "nn/layers/mlp.hpp"

#include "autograd/ops.hpp"

namespace skytape::nn {

Var mlp(const MlpVars& v, double norm_factor, const Dropout& hidden, const Dropout& output) {
  const auto value = [](Var x) { return x.defined() ? x.value() : Tensor(); };
  const tensor::MlpWeights w{value(v.norm_weight), value(v.norm_bias), norm_factor,
                             v.in_weight.value(),  v.in_bias.value(),  v.out_weight.value(),
                             v.out_bias.value()};
  const tensor::MlpForward f = tensor::mlp(v.x.value(), w, hidden, output);
  return record(
      "mlp", {v.x, v.norm_weight, v.norm_bias, v.in_weight, v.in_bias, v.out_weight, v.out_bias},
      f.y, [x = v.x.value(), w, hidden, output, saved = f.saved](const Tensor& dy, Grads& g) {
        const auto d = tensor::mlp_backward(x, w, hidden, output, saved, dy);
        g.add(0, d.dx);
        g.add(1, d.dnorm_weight);
        g.add(2, d.dnorm_bias);
        g.add(3, d.din_weight);
        g.add(4, d.din_bias);
        g.add(5, d.dout_weight);
        g.add(6, d.dout_bias);
      });
}

Var mlp(Var x, const LayerNorm& norm, const Linear& in, const Linear& out, const Dropout& hidden,
        const Dropout& output) {
  Tape& tape = x.tape();
  return mlp(
      {x, tape.parameter(*norm.weight), tape.parameter(*norm.bias), tape.parameter(*in.weight),
       tape.parameter(*in.bias), tape.parameter(*out.weight), tape.parameter(*out.bias)},
      norm.factor, hidden, output);
}

Var mlp(Var x, const Linear& in, const Linear& out, const Dropout& hidden, const Dropout& output) {
  Tape& tape = x.tape();
  return mlp({x, Var(), Var(), tape.parameter(*in.weight), tape.parameter(*in.bias),
              tape.parameter(*out.weight), tape.parameter(*out.bias)},
             1, hidden, output);
}

}  // namespace skytape::nn
