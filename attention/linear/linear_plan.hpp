// The plan that the CPU half (tiles that stay in cache) and the GPU half (arrays of features,
// library products) of linear attention are given (linear_cpu.cpp, linear.cu).
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

}  // namespace skytape::attention
