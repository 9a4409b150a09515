// The two builds of the kernels behind random_features.cpp. The maxima are twins: tiles on the CPU
// (random_features_cpu.cpp), a library product and a row kernel on the GPU.
#pragma once

#include <cstdint>

#include "tensor/device.hpp"
#include "tensor/tensor.hpp"

namespace skytape::attention {

/// blocks: [K, D, D] of normal numbers; the rows of each become orthonormal, in place.
void orthonormalise_on(Cpu, Tensor& blocks);
void orthonormalise_on(Cuda, Tensor& blocks);

/// slow[0] = step[0] / interval; both i32[1].
void divide_step_on(Cpu, const Tensor& step, std::int64_t interval, Tensor& slow);
void divide_step_on(Cuda, const Tensor& step, std::int64_t interval, Tensor& slow);

/// x: [rows, D], w: [R, D], value: [rows], feature: i32[rows].
void feature_maxima_on(Cpu, const Tensor& x, const Tensor& w, Tensor& value, Tensor& feature);
void feature_maxima_on(Cuda, const Tensor& x, const Tensor& w, Tensor& value, Tensor& feature);

/// Maximum of each row of u [rows, R] and its first position.
void row_maxima_on(Cpu, const Tensor& u, Tensor& value, Tensor& feature);
void row_maxima_on(Cuda, const Tensor& u, Tensor& value, Tensor& feature);

/// dx[row, :] += dvalue[row] w[feature[row], :]; dx: [rows, D].
void add_picked_rows_on(Cpu, const Tensor& w, const Tensor& feature, const Tensor& dvalue,
                        Tensor& dx);
void add_picked_rows_on(Cuda, const Tensor& w, const Tensor& feature, const Tensor& dvalue,
                        Tensor& dx);

}  // namespace skytape::attention
