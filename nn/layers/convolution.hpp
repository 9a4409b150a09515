// A depthwise convolution beside attention: every channel is mixed with its neighbours' alone.
//
// Letters: B batch, N positions of this batch, E width, T taps in a row, R rows of taps.
#pragma once

#include <cstdint>

#include "autograd/tape.hpp"
#include "tensor/random/dropout.hpp"

namespace skytape::nn {

/// Where a convolution's taps lie around a position: in the sequence, or in a picture that is read
/// row by row. Nothing is read across the picture's edges.
struct Window {
  std::int64_t width = 1;    // T, odd
  std::int64_t height = 1;   // R, odd; 1 in a sequence
  std::int64_t columns = 0;  // positions in a row of the picture; 0: the whole sequence is one row
};

/// y[b, n, e] = sum over r, t of weight[r T + t, e] x[b, n + (r - (R-1)/2) columns + t - (T-1)/2, e];
/// outside x is 0. x: [B, N, E], weight: [R T, E] -> [B, N, E]. Wu et al. 2019 call it a depthwise
/// convolution; Xiong et al. 2021 (Nyströmformer) set one beside attention.
[[nodiscard]] Var depthwise_convolution(Var x, Var weight, const Window& window);

/// residual + drop(depthwise_convolution of x with padded rows zeroed): one kernel forward on CUDA.
/// residual: [B, N, E], mask: [B, N].
[[nodiscard]] Var add_convolution(Var residual, Var x, Var weight, const Tensor& mask,
                                  const Window& window, const Dropout& dropout);

}  // namespace skytape::nn
