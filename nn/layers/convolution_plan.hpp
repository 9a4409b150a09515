// The two builds of the convolution's kernels (convolution.kernel.cpp).
#pragma once

#include "tensor/core/tensor.hpp"

namespace skytape::nn {

/// `forward` reads neighbour n + t - (T - 1) / 2 for tap t, `adjoint` neighbour n - t + (T - 1) / 2.
enum class Taps { forward, adjoint };

/// x, y: [B, N, E]; weight: [T, E].
void convolve_on(Cpu, const Tensor& x, const Tensor& weight, Taps taps, Tensor& y);
void convolve_on(Cuda, const Tensor& x, const Tensor& weight, Taps taps, Tensor& y);

/// dweight[t, e] = sum of dy[b, n, e] x[b, n + t - (T - 1) / 2, e]; x, dy: [B, N, E], dweight: [T, E].
void convolution_weight_on(Cpu, const Tensor& x, const Tensor& dy, Tensor& dweight);
void convolution_weight_on(Cuda, const Tensor& x, const Tensor& dy, Tensor& dweight);

}  // namespace skytape::nn
