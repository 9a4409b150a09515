// The two builds of the kernels behind random_features.cpp. The stabilised products are twins: tiles
// on the CPU (random_features_cpu.cpp); on the GPU the fused kernel products at tf32 and bf16
// (gaussian_kernel_tensor_core.cu), library products and row kernels at fp32.
//
// Letters: G = B H heads of all examples, N rows, D width, R random features, P width of what
// features multiply, K blocks of orthogonal rows.
#pragma once

#include <cstdint>

#include "attention/feature_maps/gaussian_kernel_plan.hpp"
#include "tensor/core/device.hpp"
#include "tensor/core/tensor.hpp"

namespace skytape::attention {

/// blocks: [K, D, D] of normal numbers; the rows of each become orthonormal, in place.
void orthonormalise_on(Cpu, Tensor& blocks);
void orthonormalise_on(Cuda, Tensor& blocks);

/// slow[0] = step[0] / interval; both i32[1].
void divide_step_on(Cpu, const Tensor& step, std::int64_t interval, Tensor& slow);
void divide_step_on(Cuda, const Tensor& step, std::int64_t interval, Tensor& slow);

/// The largest product w_j.x_i of each row and the first j that has it; [G, N] both.
struct RowMaxima {
  Tensor value, position;
};

/// out = E y [G, N, P] with each row's largest product as its stabiliser; in.xx without it. Fills
/// `rows`.
void stabilised_times_on(Cpu, const KernelInputs& in, const Tensor& y, const RowMaxima& rows,
                         Tensor& out);
void stabilised_times_on(Cuda, const KernelInputs& in, const Tensor& y, const RowMaxima& rows,
                         Tensor& out);
/// out = E^T u [G, R, P] with the largest product of `scope` heads as the stabiliser of all of them.
void stabilised_transposed_times_on(Cpu, const KernelInputs& in, const Tensor& u,
                                    std::int64_t scope, const RowMaxima& rows, Tensor& out);
void stabilised_transposed_times_on(Cuda, const KernelInputs& in, const Tensor& u,
                                    std::int64_t scope, const RowMaxima& rows, Tensor& out);
/// Of each scope of heads the largest of its rows' maxima, for every row: [G, N].
[[nodiscard]] Tensor largest_of_scopes(const RowMaxima& rows, std::int64_t scope);
/// The second way, on any device: with E as one array [G, N, R].
void stabilised_times_whole(const KernelInputs& in, const Tensor& y, const RowMaxima& rows,
                            Tensor& out);
void stabilised_transposed_times_whole(const KernelInputs& in, const Tensor& u, std::int64_t scope,
                                       const RowMaxima& rows, Tensor& out);

/// Maximum of each row of u [G, N, R] and its first position.
void row_maxima_on(Cpu, const Tensor& u, const RowMaxima& rows);
void row_maxima_on(Cuda, const Tensor& u, const RowMaxima& rows);

/// dx[row, :] += dvalue[row] w[feature[row], :]; dx: [rows, D].
void add_picked_rows_on(Cpu, const Tensor& w, const Tensor& feature, const Tensor& dvalue,
                        Tensor& dx);
void add_picked_rows_on(Cuda, const Tensor& w, const Tensor& feature, const Tensor& dvalue,
                        Tensor& dx);

}  // namespace skytape::attention
