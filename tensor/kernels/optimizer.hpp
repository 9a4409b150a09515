// AdamW over flat buffers: one kernel clips, decays and updates (Loshchilov & Hutter, ICLR 2019).
#pragma once

#include <cstdint>

#include "tensor/core/tensor.hpp"

namespace skytape::tensor {

/// One step on entries [begin, end) of flat buffers, g clipped to [-clip_value, clip_value] if that
/// is > 0 (gradients itself stays as it is):
///   m = β₁ m + (1 - β₁) g,  v = β₂ v + (1 - β₂) g²,
///   θ = θ (1 - lr·weight_decay) - lr/(1 - β₁^t) · m / (√v / √(1 - β₂^t) + epsilon).
/// hyper, f64[4] on the same device: lr, β₁, 1 - β₁^t, √(1 - β₂^t); read there, so that a replayed
/// CUDA graph takes the values of its step.
void adamw_step(Tensor& values, const Tensor& gradients, Tensor& m, Tensor& v, std::int64_t begin,
                std::int64_t end, const Tensor& hyper, double clip_value, double weight_decay,
                double beta2, double epsilon);

// The scalars of one step, and its kernel on either device (optimizer.kernel.cpp).

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
