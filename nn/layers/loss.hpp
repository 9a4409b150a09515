// What training lowers.
#pragma once

#include "autograd/tape.hpp"

namespace skytape::nn {

/// Mean cross entropy, a scalar, against labels that are 1 - s the example's class and s every class
/// alike, s the smoothing (Szegedy et al. 2016, sec. 7). logits: [B, C], labels: i32[B].
[[nodiscard]] Var classification_loss(Var logits, const Tensor& labels, double smoothing);

}  // namespace skytape::nn
