// The training loss of logits, composed of an op for each step.
#pragma once

#include "autograd/ops.hpp"

namespace skytape::test {

/// Mean cross entropy, a scalar, against labels that are 1 - s the example's class and s every
/// class alike. logits: [B, C], labels: i32[B]. With p = softmax(x):
/// -sum_c t_c log p_c = (1 - s) (-log p_label) + s mean_c(-log p_c), and
/// mean_c(-log p_c) = logsumexp(x) - mean_c x_c.
[[nodiscard]] inline Var classification_loss(Var logits, const Tensor& labels, double smoothing) {
  const Var of_label = cross_entropy(logits, labels);
  if (smoothing == 0) return of_label;
  const Var of_every = mean(logsumexp(logits) - mean(logits, 1), 0);
  return affine(of_label, 1 - smoothing) + affine(of_every, smoothing);
}

}  // namespace skytape::test
