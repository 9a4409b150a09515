// A depthwise convolution over positions: every channel is mixed with its neighbours' alone.
//
// Letters: B batch, N positions of this batch, E width, T taps.
#pragma once

#include "autograd/tape.hpp"

namespace skytape::nn {

/// y[b, n, e] = sum over t of weight[t, e] x[b, n + t - (T - 1) / 2, e]; outside the sequence x is 0.
/// x: [B, N, E], weight: [T, E] with an odd T -> [B, N, E]. Wu et al. 2019 call it a depthwise
/// convolution; Xiong et al. 2021 (Nyströmformer) set one beside attention.
[[nodiscard]] Var depthwise_convolution(Var x, Var weight);

}  // namespace skytape::nn
