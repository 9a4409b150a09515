#include "nn/layers/loss.hpp"

#include "autograd/ops.hpp"

namespace skytape::nn {

// With p = softmax(x): -sum_c t_c log p_c = (1 - s) (-log p_label) + s mean_c(-log p_c), and
// mean_c(-log p_c) = logsumexp(x) - mean_c x_c.
Var classification_loss(Var logits, const Tensor& labels, double smoothing) {
  const Var of_label = cross_entropy(logits, labels);
  if (smoothing == 0) return of_label;
  const Var of_every = mean(logsumexp(logits) - mean(logits, 1), 0);
  return affine(of_label, 1 - smoothing) + affine(of_every, smoothing);
}

}  // namespace skytape::nn
