// The steps of the iterative inverse at precision bf16 on CUDA (inverse_planes.cu): f32 matrices of
// up to 128 rows, split into two bf16 planes.
#pragma once

#include "attention/inverse/iterative_inverse.hpp"
#include "tensor/core/tensor.hpp"

namespace skytape::attention {

/// Returns whether a block of this device has the shared memory for matrices of so many rows: 209
/// KB for 128 (sm_90), 55 KB for 64.
[[nodiscard]] bool inverse_planes_fit(std::int64_t size);

/// As inverse_steps_on and inverse_steps_backward_on, for a trace with planes:
/// [G, 2 + 4 steps, R, R], R being L rounded up to a compiled size.
void inverse_steps_by_planes(const Tensor& m, InverseTrace& trace);
void inverse_steps_backward_by_planes(const Tensor& m, const InverseTrace& trace, const Tensor& dz,
                                      Tensor& dm, Tensor& dstart);

}  // namespace skytape::attention
