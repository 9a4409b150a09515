// The plan of dropout kernels: which element numbers a tensor's memory has, and which to keep.
#pragma once

#include <cstdint>

#include "tensor/random/dropout.hpp"

namespace skytape::tensor {

/// Memory is `ranges` runs of `range_size` entries; entry i of run r has element number
/// first + r * range_stride + i. An element is dropped when its 16 bits are < threshold.
struct DropoutPlan {
  std::uint64_t key = 0;
  const std::int32_t* step = nullptr;  // on the device of the tensors; null: step 0
  std::uint32_t threshold = 0;         // rate * 65536
  double scale = 1;                    // of kept entries: 1 / (1 - threshold / 65536)
  std::int64_t first = 0;
  std::int64_t ranges = 0;
  std::int64_t range_size = 0;
  std::int64_t range_stride = 0;
};

/// Returns the plan of a tensor [B, N, E] on the device. Throws, naming `op`, where rate, step or
/// shape do not fit.
[[nodiscard]] DropoutPlan dropout_plan(const char* op, const Shape& shape, Device device,
                                       const Dropout& options);

void dropout_on(Cpu, const DropoutPlan& plan, const Tensor& x, Tensor& y);
void dropout_on(Cuda, const DropoutPlan& plan, const Tensor& x, Tensor& y);
void add_dropout_on(Cpu, const DropoutPlan& plan, const Tensor& residual, const Tensor& x,
                    const Tensor& bias, Tensor& y);
void add_dropout_on(Cuda, const DropoutPlan& plan, const Tensor& residual, const Tensor& x,
                    const Tensor& bias, Tensor& y);
void bias_gelu_dropout_on(Cpu, const DropoutPlan& plan, const Tensor& x, const Tensor& bias,
                          Tensor& y);
void bias_gelu_dropout_on(Cuda, const DropoutPlan& plan, const Tensor& x, const Tensor& bias,
                          Tensor& y);
void bias_gelu_dropout_backward_on(Cpu, const DropoutPlan& plan, const Tensor& x,
                                   const Tensor& bias, const Tensor& dy, Tensor& dx);
void bias_gelu_dropout_backward_on(Cuda, const DropoutPlan& plan, const Tensor& x,
                                   const Tensor& bias, const Tensor& dy, Tensor& dx);
void dropout_factors_on(Cpu, const DropoutPlan& plan, Tensor& factors);
void dropout_factors_on(Cuda, const DropoutPlan& plan, Tensor& factors);

}  // namespace skytape::tensor
