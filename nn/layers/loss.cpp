#include "nn/layers/loss.hpp"

#include "tensor/classifier/classifier.hpp"

namespace skytape::nn {

Scored classifier_loss(const ClassifierVars& v, const Tensor& labels, double smoothing,
                       double examples, const Tensor& class_weights) {
  const tensor::ClassifierWeights w{v.in_weight.value(), v.in_bias.value(), v.out_weight.value(),
                                    v.out_bias.value()};
  const Tensor x = v.x.value();
  const tensor::Classified found =
      tensor::classify(x, w, labels, smoothing, examples, class_weights);
  const Var loss = record("classify", {v.x, v.in_weight, v.in_bias, v.out_weight, v.out_bias},
                          found.loss, [x, w, found](const Tensor& dy, Grads& g) {  // dy: scalar
                            const auto d = tensor::classify_backward(x, w, found, dy);
                            g.add(0, d.dx);
                            g.add(1, d.din_weight);
                            g.add(2, d.din_bias);
                            g.add(3, d.dout_weight);
                            g.add(4, d.dout_bias);
                          });
  return {loss, found.correct};
}

Scored classifier_loss(Var features, const Linear& in, const Linear& out, const Tensor& labels,
                       double smoothing, double examples, const Tensor& class_weights) {
  Tape& tape = features.tape();
  return classifier_loss({features, tape.parameter(*in.weight), tape.parameter(*in.bias),
                          tape.parameter(*out.weight), tape.parameter(*out.bias)},
                         labels, smoothing, examples, class_weights);
}

}  // namespace skytape::nn
