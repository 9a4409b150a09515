#include "nn/layers/loss.hpp"

#include "autograd/ops.hpp"
#include "tensor/classifier/classifier.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/kernels/reduce.hpp"
#include "tensor/norm/softmax.hpp"

namespace skytape::nn {

// With p = softmax(x): -sum_c t_c log p_c = (1 - s) (-log p_label) + s mean_c(-log p_c), and
// mean_c(-log p_c) = logsumexp(x) - mean_c x_c.
Var classification_loss(Var logits, const Tensor& labels, double smoothing) {
  const Var of_label = cross_entropy(logits, labels);
  if (smoothing == 0) return of_label;
  const Var of_every = mean(logsumexp(logits) - mean(logits, 1), 0);
  return affine(of_label, 1 - smoothing) + affine(of_every, smoothing);
}

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
