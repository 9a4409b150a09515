// The scalars of one AdamW step, and its kernel on either device.
#pragma once

#include <cstdint>

#include "tensor/core/tensor.hpp"

namespace skytape::tensor {

struct AdamwStep {
  std::int64_t begin = 0, end = 0;  // entries of the flat buffers
  const double* hyper = nullptr;    // [4] on the device: lr, β₁, 1 - β₁^t, √(1 - β₂^t)
  double clip_value = 0;            // 0: no clipping
  double weight_decay = 0;
  double beta2 = 0;
  double epsilon = 0;
};

void adamw_on(Cpu, const AdamwStep& step, Tensor& values, const Tensor& gradients, Tensor& m,
              Tensor& v);
void adamw_on(Cuda, const AdamwStep& step, Tensor& values, const Tensor& gradients, Tensor& m,
              Tensor& v);

}  // namespace skytape::tensor
