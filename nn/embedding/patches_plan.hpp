// The two builds of the kernel of squares of pixels (patches.kernel.cpp).
#pragma once

#include "tensor/core/tensor.hpp"

namespace skytape::nn {

/// greys[b, i, ·]: the square around pixel i. ids: i32[B, N], greys: [B, N, side²].
void patch_greys_on(Cpu, const Tensor& ids, std::int64_t columns, std::int64_t side, Tensor& greys);
void patch_greys_on(Cuda, const Tensor& ids, std::int64_t columns, std::int64_t side,
                    Tensor& greys);

}  // namespace skytape::nn
