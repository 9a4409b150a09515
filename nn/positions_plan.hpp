// The two builds of the kernel that turns rows (positions.kernel.cpp).
#pragma once

#include "tensor/core/tensor.hpp"

namespace skytape::nn {

enum class Turn { forward, back };

/// x, y: [B, H, N, D]; angles: [at least N, D], D/2 cosines and D/2 sines of each position.
void turn_on(Cpu, const Tensor& x, const Tensor& angles, Turn direction, Tensor& y);
void turn_on(Cuda, const Tensor& x, const Tensor& angles, Turn direction, Tensor& y);

}  // namespace skytape::nn
