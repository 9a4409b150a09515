// A classifier's kernels, CUDA only: its sizes, and where they leave the parameters' gradients.
#pragma once

#include <cstdint>

#include "tensor/classifier/classifier.hpp"

namespace skytape::tensor {

struct ClassifierPlan {
  std::int64_t b = 0, k = 0, f = 0, c = 0;  // examples, features, hidden channels, classes
  double smoothing = 0;
  double examples = 1;  // of the whole batch
};

/// In one array: dW1 [F, K], db1 [F], dW2 [C, F], db2 [C].
struct ClassifierGradientPlaces {
  std::int64_t in_weight = 0, in_bias, out_weight, out_bias, size;
  explicit constexpr ClassifierGradientPlaces(const ClassifierPlan& p)
      : in_bias(p.f * p.k),
        out_weight(in_bias + p.f),
        out_bias(out_weight + p.c * p.f),
        size(out_bias + p.c) {}
};

void classify_on(Cuda, const ClassifierPlan& plan, const Tensor& x, const ClassifierWeights& w,
                 const Tensor& labels, const Tensor& class_weights, Classified& out);
/// `dparams`: all gradients of parameters, at ClassifierGradientPlaces.
void classify_backward_on(Cuda, const ClassifierPlan& plan, const Tensor& x,
                          const ClassifierWeights& w, const Classified& saved, const Tensor& dloss,
                          Tensor& dx, Tensor& dparams);

}  // namespace skytape::tensor
