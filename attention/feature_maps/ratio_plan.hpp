// The two builds of the row-normalised ratio (ratio.kernel.cpp, ratio.cpp).
#pragma once

#include "tensor/core/tensor.hpp"

namespace skytape::attention {

void ratio_on(Cpu, const Tensor& x, Tensor& out);
void ratio_on(Cuda, const Tensor& x, Tensor& out);

void ratio_backward_on(Cpu, const Tensor& x, const Tensor& out, const Tensor& dout, Tensor& dx);
void ratio_backward_on(Cuda, const Tensor& x, const Tensor& out, const Tensor& dout, Tensor& dx);

}  // namespace skytape::attention
