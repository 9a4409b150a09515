// Functions that run the iterative inverse on either device (iterative_inverse_cpu.cpp,
// iterative_inverse.cu, iterative_inverse.kernel.cpp), and the results that they keep for the
// gradient.
#pragma once

#include "attention/inverse/iterative_inverse.hpp"
#include "tensor/core/device.hpp"
#include "tensor/core/tensor.hpp"

namespace skytape::attention {

/// The results of the steps that a device keeps for their gradient.
enum class InverseKept {
  factors,   // all: the steps are chains of products
  iterates,  // V alone: one launch, which computes X, R and P again on the way back
  planes  // M and all factors, as the kernel stores them: one launch, 1e-4 of the exact steps away
};

/// Returns the results that the steps below keep of matrices m: [G, L, L]. On CUDA, one or two
/// blocks work on each f32 matrix with L <= 128, in one launch forward and one backward; at
/// precision bf16 by planes (inverse_planes.cu). Larger ones do not fit into a block's shared
/// memory, and f64 is for gradient checks: these keep all, and are chains of library products.
[[nodiscard]] InverseKept inverse_kept_on(Cpu, const Tensor& m);
[[nodiscard]] InverseKept inverse_kept_on(Cuda, const Tensor& m);

/// A trace with its first iterate and memory for the rest; start: [G, L, L].
[[nodiscard]] InverseTrace empty_trace(const Tensor& start, std::int64_t steps,
                                       InverseKept kept = InverseKept::factors);

/// The most blocks that work on a matrix together on CUDA: two, where the device has clusters and
/// runs all pairs at the same time. A caller that compares passes 1.
constexpr int kMostInverseBlocks = 2;
/// The blocks that each of `count` matrices of up to 128 rows has, at the device's precision.
[[nodiscard]] int inverse_blocks_on(Cuda, std::int64_t count, std::int64_t size,
                                    int most_blocks = kMostInverseBlocks);

/// Every step from the first iterate on. m: [G, L, L]; the trace's tensors are filled in place.
void inverse_steps_on(Cpu, const Tensor& m, InverseTrace& trace);
void inverse_steps_on(Cuda, const Tensor& m, InverseTrace& trace,
                      int most_blocks = kMostInverseBlocks);

/// From dz (of the last iterate) the gradients dm and dstart (of the first), both overwritten; all
/// [G, L, L].
void inverse_steps_backward_on(Cpu, const Tensor& m, const InverseTrace& trace, const Tensor& dz,
                               Tensor& dm, Tensor& dstart);
void inverse_steps_backward_on(Cuda, const Tensor& m, const InverseTrace& trace, const Tensor& dz,
                               Tensor& dm, Tensor& dstart, int most_blocks = kMostInverseBlocks);

/// The batched way, on any device: in fp32 whatever the precision. Tests compare the others with
/// it.
void inverse_steps_batched(const Tensor& m, InverseTrace& trace);
void inverse_steps_backward_batched(const Tensor& m, const InverseTrace& trace, const Tensor& dz,
                                    Tensor& dm, Tensor& dstart);

/// y = scale x + shift I; x, y: [G, L, L]. x is not read where scale is 0.
void shifted_identity_on(Cpu, const Tensor& x, double scale, double shift, Tensor& y);
void shifted_identity_on(Cuda, const Tensor& x, double scale, double shift, Tensor& y);

// The start (1). c and argmax: [G / scope], an entry for each matrix, example or whole batch.

/// c = 1 / largest and start *= c, in place; start: [G, L, L], M^T before.
void scale_start_on(Cpu, const Tensor& largest, Tensor& c, Tensor& start);
void scale_start_on(Cuda, const Tensor& largest, Tensor& c, Tensor& start);

/// dm += c dV_0^T, in place, and the rows' shares of dc: dc[g, i] = sum_j dV_0^T[i, j] M[i, j];
/// dm, dstart_t, m: [G, L, L], dc: [G, L].
void start_backward_on(Cpu, const Tensor& m, const Tensor& dstart_t, const Tensor& c, Tensor& dm,
                       Tensor& dc);
void start_backward_on(Cuda, const Tensor& m, const Tensor& dstart_t, const Tensor& c, Tensor& dm,
                       Tensor& dc);

/// dm[g, :, argmax] -= c^2 dc, dc: [G / scope], its matrices' shares [G, L] added up.
void add_to_columns_on(Cpu, const Tensor& c, const Tensor& argmax, const Tensor& dc, Tensor& dm);
void add_to_columns_on(Cuda, const Tensor& c, const Tensor& argmax, const Tensor& dc, Tensor& dm);

}  // namespace skytape::attention
