// The two builds of the kernels behind random.cpp.
#pragma once

#include "tensor/random/random.hpp"

namespace skytape::tensor {

void uniform_on(Cpu, const Random& random, std::int64_t first, Tensor& out);
void uniform_on(Cuda, const Random& random, std::int64_t first, Tensor& out);
void normal_on(Cpu, const Random& random, std::int64_t first, Tensor& out);
void normal_on(Cuda, const Random& random, std::int64_t first, Tensor& out);

}  // namespace skytape::tensor
