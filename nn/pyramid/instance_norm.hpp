// Instance norm (Ulyanov et al. 2016): each channel of a picture brought to mean 0 and variance 1
// over the picture's own places, so that what is rare in it stands out. No other example enters.
//
// Notation: B batch, N places, E width.
#pragma once

#include "autograd/tape.hpp"

namespace skytape::nn {

inline constexpr double kInstanceNormEpsilon = 1e-5;  // added to variances

/// y[b, n, e] = (x[b, n, e] - mean) / sqrt(variance + 1e-5) weight[e] + bias[e], mean and variance
/// over the N places of channel e. x: [B, N, E], weight, bias: [E] -> [B, N, E].
[[nodiscard]] Var instance_norm(Var x, Var weight, Var bias);

}  // namespace skytape::nn
