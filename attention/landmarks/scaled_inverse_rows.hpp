// Row kernels around the iterative inverse: what scaled_inverse.cpp leaves to the device.
#pragma once

#include "tensor/core/device.hpp"
#include "tensor/core/tensor.hpp"

namespace skytape::attention {

// G: all leading axes, in whatever shape they come.

/// r = (row sums of m)^(-1/2); m: [G, L, L], r: [G, L].
void inverse_roots_on(Cpu, const Tensor& m, Tensor& r);
void inverse_roots_on(Cuda, const Tensor& m, Tensor& r);

/// scaled = R m R and s = R p; m, scaled: [G, L, L], p, s: [G, L, J], r: [G, L].
void scale_rows_on(Cpu, const Tensor& m, const Tensor& p, const Tensor& r, Tensor& scaled,
                   Tensor& s);
void scale_rows_on(Cuda, const Tensor& m, const Tensor& p, const Tensor& r, Tensor& scaled,
                   Tensor& s);

/// The tensors from which the gradients of m and p, the last ones, are computed.
struct ScaledRows {
  Tensor r;          // [G, L]
  Tensor dm_scaled;  // [G, L, L]: of M^
  Tensor e, e_sums;  // [G, L, L]: dM^ M^ (entrywise); [G, L]: its column sums
  Tensor dt, f;      // [G, L, J]
  Tensor ds, s;      // [G, L, J]
};
/// dm = R dM^ R - (r^3 dr / 2) 1^T and dp = R dS, as derived in scaled_inverse.cpp.
void scaled_gradients_on(Cpu, const ScaledRows& in, Tensor& dm, Tensor& dp);
void scaled_gradients_on(Cuda, const ScaledRows& in, Tensor& dm, Tensor& dp);

}  // namespace skytape::attention
