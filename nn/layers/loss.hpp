// The training loss.
#pragma once

#include "nn/layers/layers.hpp"

namespace skytape::nn {

/// Loss of a batch or a part of one, and the share of its answers that are right, weighted alike.
struct Scored {
  Var loss;        // scalar
  Tensor correct;  // scalar
};

struct ClassifierVars {
  Var x, in_weight, in_bias, out_weight, out_bias;
};
/// Mean cross entropy against labels that are 1 - s the example's class and s every class alike, s
/// the smoothing (Szegedy et al. 2016, sec. 7), where two linear layers with a ReLU between make
/// logits [B, C] of features [B, K]; and the number of correct answers over `examples`. labels:
/// i32[B]. `class_weights` [C]: what an example's loss is worth, by its class; undefined: 1.
[[nodiscard]] Scored classifier_loss(const ClassifierVars& v, const Tensor& labels,
                                     double smoothing, double examples,
                                     const Tensor& class_weights = {});
/// Returns the same loss and count by the parameters of two layers.
[[nodiscard]] Scored classifier_loss(Var features, const Linear& in, const Linear& out,
                                     const Tensor& labels, double smoothing, double examples,
                                     const Tensor& class_weights = {});

}  // namespace skytape::nn
