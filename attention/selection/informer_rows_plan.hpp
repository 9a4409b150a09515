// The two builds of the kernels behind informer_rows.cpp. The measure is a pair of twins: on the CPU
// one product after the other, each vectorised, on the GPU one thread per product.
#pragma once

#include <cstdint>

#include "tensor/core/device.hpp"
#include "tensor/core/tensor.hpp"

namespace skytape::attention {

void sampled_keys_on(Cpu, const Tensor& u, const Tensor& counts, Tensor& keys);
void sampled_keys_on(Cuda, const Tensor& u, const Tensor& counts, Tensor& keys);

void sampled_measure_on(Cpu, const Tensor& q, const Tensor& k, const Tensor& keys,
                        std::int64_t length, Tensor& measure);
void sampled_measure_on(Cuda, const Tensor& q, const Tensor& k, const Tensor& keys,
                        std::int64_t length, Tensor& measure);

/// rows: i32[B, H, T] in the order of their measure; those behind the trimmed ones become -1.
void drop_displaced_on(Cpu, const Tensor& measure, std::int64_t top, std::int64_t trimmed,
                       Tensor& rows);
void drop_displaced_on(Cuda, const Tensor& measure, std::int64_t top, std::int64_t trimmed,
                       Tensor& rows);

/// index, used: as in ChosenRows; others: [B, H, N], all 1 at the start.
void chosen_rows_on(Cpu, const Tensor& rows, Tensor& index, Tensor& used, Tensor& others);
void chosen_rows_on(Cuda, const Tensor& rows, Tensor& index, Tensor& used, Tensor& others);

}  // namespace skytape::attention
