// A depthwise convolution parallel to attention: every channel is mixed with its neighbours' alone.
//
// Notation: B batch, N positions of this batch, E width, T taps in a row, R rows of taps.
#pragma once

#include <cstdint>

#include "autograd/tape.hpp"
#include "tensor/core/tensor.hpp"
#include "tensor/random/dropout.hpp"

namespace skytape::nn {

/// The places of a convolution's taps around a position: in the sequence, or in a picture that is
/// read row by row. Nothing is read across the picture's edges.
struct Window {
  std::int64_t width = 1;    // T, odd
  std::int64_t height = 1;   // R, odd; 1 in a sequence
  std::int64_t columns = 0;  // positions in a row of the picture; 0: the whole sequence is one row
};

/// y[b, n, e] = residual[b, n, e] + drop(sum over r, t of weight[r T + t, e] (mask x)[b, m, e])
/// with m = n + (r - (R-1)/2) columns + t - (T-1)/2; outside x is 0. residual, x: [B, N, E],
/// weight: [R T, E], mask: [B, N] -> [B, N, E]. Wu et al. 2019 call the sum a depthwise
/// convolution; Xiong et al. 2021 (Nyströmformer) use one parallel to attention.
[[nodiscard]] Var add_convolution(Var residual, Var x, Var weight, const Tensor& mask,
                                  const Window& window, const Dropout& dropout);

}  // namespace skytape::nn
