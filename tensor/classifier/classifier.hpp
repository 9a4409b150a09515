// The classifier behind the encoder and its loss.
//
//   h = max(0, x W1ᵀ + b1)    z = h W2ᵀ + b2
//   loss = mean over b of w_{label_b} (logsumexp(z_b) - Σ_c t_bc z_bc), w the weights of classes
//   t_bc = (1 - s) [c = label_b] + s / C, s the label smoothing
//
// Notation: B examples, K features, F hidden channels, C classes.
#pragma once

#include "tensor/core/tensor.hpp"

namespace skytape::tensor {

struct ClassifierWeights {
  Tensor in_weight, in_bias;    // [F, K], [F]
  Tensor out_weight, out_bias;  // [C, F], [C]
};

struct Classified {
  Tensor loss;     // [], the mean
  Tensor correct;  // [], the number of examples whose label has the largest z, over `examples`
  Tensor hidden;   // [B, F], h
  Tensor dlogits;  // [B, C], dloss/dz
};
/// Classifies x [B, K] with labels i32[B], B > 0. A label out of range is an error on a CPU, NaN on
/// CUDA. `class_weights`: [C]; undefined: all 1. On CUDA forward is two kernels and backward one,
/// with products in fp32, where a few thousand weights make each product too small for a library;
/// elsewhere they are as many operations as the definition has.
[[nodiscard]] Classified classify(const Tensor& x, const ClassifierWeights& w, const Tensor& labels,
                                  double smoothing, double examples,
                                  const Tensor& class_weights = {});

struct ClassifierGradients {
  Tensor dx;                      // [B, K]
  Tensor din_weight, din_bias;    // [F, K], [F]
  Tensor dout_weight, dout_bias;  // [C, F], [C]
};
/// From what classify() left and dloss [].
[[nodiscard]] ClassifierGradients classify_backward(const Tensor& x, const ClassifierWeights& w,
                                                    const Classified& saved, const Tensor& dloss);

}  // namespace skytape::tensor
