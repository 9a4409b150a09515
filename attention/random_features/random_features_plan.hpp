// The kernels behind random_features.cpp, and its products with features.
//
// Notation: G = B H heads of all examples, N rows, D width, R random features, P width of what
// features multiply, K blocks of orthogonal rows.
#pragma once

#include <cstdint>

#include "attention/feature_maps/gaussian_kernel_plan.hpp"
#include "attention/random_features/random_features.hpp"
#include "tensor/core/device.hpp"
#include "tensor/core/tensor.hpp"

namespace skytape::attention {

/// blocks: [K, D, D] of normal numbers; the rows of each become orthonormal, in place.
void orthonormalise_on(Cpu, Tensor& blocks);
void orthonormalise_on(Cuda, Tensor& blocks);

/// slow[0] = step[0] / interval; both i32[1].
void divide_step_on(Cpu, const Tensor& step, std::int64_t interval, Tensor& slow);
void divide_step_on(Cuda, const Tensor& step, std::int64_t interval, Tensor& slow);

/// Maximum of each row of u [G, N, R] and its first position.
void row_maxima_on(Cpu, const Tensor& u, const FeatureMaxima& rows);
void row_maxima_on(Cuda, const Tensor& u, const FeatureMaxima& rows);

/// dx[row, :] += dvalue[row] w[feature[row], :]; dx: [rows, D].
void add_picked_rows_on(Cpu, const Tensor& w, const Tensor& feature, const Tensor& dvalue,
                        Tensor& dx);
void add_picked_rows_on(Cuda, const Tensor& w, const Tensor& feature, const Tensor& dvalue,
                        Tensor& dx);

/// out = E y [G, N, P] with each row's largest product as its stabiliser; in.xx without it. Fills
/// `rows`. In tiles on the CPU (random_features_cpu.cpp); `whole`, on any device, with E as one
/// array [G, N, R].
void stabilised_times_tiled(const KernelInputs& in, const Tensor& y, const FeatureMaxima& rows,
                            Tensor& out);
void stabilised_times_whole(const KernelInputs& in, const Tensor& y, const FeatureMaxima& rows,
                            Tensor& out);
/// out = E^T u [G, R, P] with the largest product of `scope` heads as the stabiliser of all of
/// them.
void stabilised_transposed_times_tiled(const KernelInputs& in, const Tensor& u, std::int64_t scope,
                                       const FeatureMaxima& rows, Tensor& out);
void stabilised_transposed_times_whole(const KernelInputs& in, const Tensor& u, std::int64_t scope,
                                       const FeatureMaxima& rows, Tensor& out);

}  // namespace skytape::attention
