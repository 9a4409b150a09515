// What the CPU and CUDA halves of sampling.cpp are given.
#pragma once

#include <cstdint>

#include "tensor/core/device.hpp"
#include "tensor/core/tensor.hpp"

namespace skytape::attention {

/// Where the random numbers of rows come from (RowNumbers on the device).
struct NumberPlan {
  std::uint64_t key = 0;
  const std::int32_t* step = nullptr;  // on the tensors' device; null: step 0
  std::int64_t first_row = 0, row_length = 0;
};

/// values: [rows, n] -> index: i32[rows, k].
void top_k_on(Cpu, const Tensor& values, Tensor& index);
void top_k_on(Cuda, const Tensor& values, Tensor& index);

/// keys = log(weight) - log(E), E ~ Exp(1); -inf where the weight is zero. Both [rows, n].
void race_keys_on(Cpu, const NumberPlan& plan, const Tensor& weights, Tensor& keys);
void race_keys_on(Cuda, const NumberPlan& plan, const Tensor& weights, Tensor& keys);

/// weights, cumulative (scratch): [rows, n] -> index: i32[rows, k].
void invert_cumulative_on(Cpu, const NumberPlan& plan, const Tensor& weights, Tensor& cumulative,
                          Tensor& index);
void invert_cumulative_on(Cuda, const NumberPlan& plan, const Tensor& weights, Tensor& cumulative,
                          Tensor& index);

}  // namespace skytape::attention
