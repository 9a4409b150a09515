// What the MLP's kernels receive, CUDA only.
#pragma once

#include <cstdint>

#include "tensor/launch/launch.hpp"
#include "tensor/mlp/mlp.hpp"
#include "tensor/tokens/row_dropout.hpp"

namespace skytape::tensor {

struct MlpPlan {
  std::int64_t rows = 0;  // B N, at most 2^31 - 1
  int e = 0, f = 0;       // E, F
  float epsilon = 0;      // of the norm
  RowDropout hidden, output;
};

/// Where the gradients of the parameters begin in one array of them.
struct MlpGradientPlaces {
  std::int64_t norm_weight, norm_bias, in_weight, in_bias, out_weight, out_bias, size;
  HD MlpGradientPlaces(std::int64_t e, std::int64_t f)
      : norm_weight(0),
        norm_bias(e),
        in_weight(2 * e),
        in_bias(2 * e + e * f),
        out_weight(2 * e + e * f + f),
        out_bias(2 * e + 2 * e * f + f),
        size(3 * e + 2 * e * f + f) {}
};

void mlp_on(Cuda, const MlpPlan& plan, const Tensor& x, const MlpWeights& w, Tensor& y);
/// `dparams`: all gradients of parameters, at MlpGradientPlaces.
void mlp_backward_on(Cuda, const MlpPlan& plan, const Tensor& x, const MlpWeights& w,
                     const Tensor& dy, Tensor& dx, Tensor& dparams);

}  // namespace skytape::tensor
