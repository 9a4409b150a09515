// The plan that the CPU half (tiles that stay in cache) and the GPU half (arrays of features,
// library products) of linear attention are given (linear_cpu.cpp, linear.cpp, linear.kernel.cpp).
//
// Notation: G = B H heads of all examples, N queries and keys, D head width, R features, P = D + 1.
#pragma once

#include <cstdint>

#include "attention/linear/linear.hpp"

namespace skytape::attention {

/// Operands with batch and heads joined, and the sizes of everything.
struct LinearInputs {
  Tensor q, k, v;  // [G, N, D]
  Tensor mask;     // [B, N]
  LinearOptions options;
  std::int64_t heads = 0;     // H
  std::int64_t features = 0;  // R
};

/// Fills sums [G, P, R], z [G, N] and out [G, N, D].
void linear_forward_on(Cpu, const LinearInputs& in, LinearForward& result);
void linear_forward_on(Cuda, const LinearInputs& in, LinearForward& result);

/// Fills dq, dk and dv [G, N, D]; saved as linear_forward_on filled it, dout: [G, N, D].
void linear_backward_on(Cpu, const LinearInputs& in, const LinearForward& saved, const Tensor& dout,
                        LinearBackward& d);
void linear_backward_on(Cuda, const LinearInputs& in, const LinearForward& saved,
                        const Tensor& dout, LinearBackward& d);

/// The pieces of the second way, on any device.
/// phi of the rows of x [G, N, D], times the mask if it is defined: f [G, N, R].
void features_on(Cpu, const LinearInputs& in, const Tensor& x, const Tensor& mask, Tensor& f);
void features_on(Cuda, const LinearInputs& in, const Tensor& x, const Tensor& mask, Tensor& f);
/// dx [G, N, D] from df [G, N, R], mask as above.
void features_backward_on(Cpu, const LinearInputs& in, const Tensor& x, const Tensor& mask,
                          const Tensor& df, Tensor& dx);
void features_backward_on(Cuda, const LinearInputs& in, const Tensor& x, const Tensor& mask,
                          const Tensor& df, Tensor& dx);
/// z and O of (2) from S [G, N, P].
void normalise_on(Cpu, const LinearInputs& in, const Tensor& s, Tensor& z, Tensor& out);
void normalise_on(Cuda, const LinearInputs& in, const Tensor& s, Tensor& z, Tensor& out);
/// dS [G, N, P] from dO.
void normalise_backward_on(Cpu, const LinearInputs& in, const Tensor& z, const Tensor& out,
                           const Tensor& dout, Tensor& ds);
void normalise_backward_on(Cuda, const LinearInputs& in, const Tensor& z, const Tensor& out,
                           const Tensor& dout, Tensor& ds);

/// Linear attention with A and C as whole arrays.
void linear_forward_whole(const LinearInputs& in, LinearForward& result);
void linear_backward_whole(const LinearInputs& in, const LinearForward& saved, const Tensor& dout,
                           LinearBackward& d);

}  // namespace skytape::attention
