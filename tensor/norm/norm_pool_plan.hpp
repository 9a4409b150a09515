// The CUDA half of norm_pool.cpp.
#pragma once

#include "tensor/norm/norm_pool.hpp"

namespace skytape::tensor {

void norm_pool_on(Cuda, const Tensor& x, const Tensor& weight, const Tensor& bias,
                  const Tensor& mask, const TokenWeights& rule, NormPool& out);
/// `dparams` [2, E]: dweight, dbias.
void norm_pool_backward_on(Cuda, const Tensor& x, const Tensor& weight, const Tensor& mask,
                           const TokenWeights& rule, const NormPool& saved, const Tensor& dpooled,
                           Tensor& dx, Tensor& dparams);

}  // namespace skytape::tensor
