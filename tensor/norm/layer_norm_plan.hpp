// The kernels behind layer_norm.cpp: a pair of twins for any width, and two of CUDA alone for rows up
// to 256 wide (layer_norm.cu).
#pragma once

#include "tensor/norm/layer_norm.hpp"

namespace skytape::tensor {

void layer_norm_on(Cpu, const Tensor& x, const Tensor& weight, const Tensor& bias,
                   LayerNormForward& f);
void layer_norm_on(Cuda, const Tensor& x, const Tensor& weight, const Tensor& bias,
                   LayerNormForward& f);
void layer_norm_backward_on(Cpu, const Tensor& x, const Tensor& weight, const Tensor& mean,
                            const Tensor& inv_std, const Tensor& dy, Tensor& dx, Tensor& dparams);
void layer_norm_backward_on(Cuda, const Tensor& x, const Tensor& weight, const Tensor& mean,
                            const Tensor& inv_std, const Tensor& dy, Tensor& dx, Tensor& dparams);
/// CUDA: with one pass over what they read; false where rows are too wide for that, and nothing is
/// done (norm/layer_norm.cu).
bool layer_norm_at_once(const Tensor& x, const Tensor& weight, const Tensor& bias,
                        LayerNormForward& f);
bool layer_norm_backward_at_once(const Tensor& x, const Tensor& weight, const Tensor& mean,
                                 const Tensor& inv_std, const Tensor& dy, const Tensor& also,
                                 const Tensor& residual, Tensor& dx, Tensor& dparams);

}  // namespace skytape::tensor
