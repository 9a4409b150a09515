// The scalars of one AdamW step, as its kernel takes them.
#pragma once

#include <cstdint>

namespace skytape::tensor {

struct AdamwStep {
  std::int64_t begin = 0, end = 0;  // entries of the flat buffers
  const double* hyper = nullptr;    // [4] on the device: lr, β₁, 1 - β₁^t, √(1 - β₂^t)
  double clip_value = 0;            // 0: no clipping
  double weight_decay = 0;
  double beta2 = 0;
  double epsilon = 0;
};

}  // namespace skytape::tensor
