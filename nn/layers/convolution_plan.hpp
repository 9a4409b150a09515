// The kernels of the convolution parallel to attention (convolution.kernel.cpp).
//
// Notation: B batch, N positions of this batch, E width, T taps in a row, R rows of taps.
#pragma once

#include <cstdint>

#include "tensor/core/device.hpp"
#include "tensor/core/tensor.hpp"
#include "tensor/tokens/row_dropout.hpp"

namespace skytape::nn {

struct ConvolutionPlan {
  std::int64_t positions, width;  // N, E
  std::int64_t columns;           // positions in a row, at most N
  std::int64_t taps, tap_rows;    // T, R
};

/// y = residual + drop(convolution of mask x), and the gradient of x from that of what was dropped
/// out. residual, x, y: [B, N, E]; mask: [B, N].
void add_convolution_on(Cpu, const ConvolutionPlan& plan, const Tensor& residual, const Tensor& x,
                        const Tensor& mask, const Tensor& weight, const tensor::RowDropout& dropout,
                        Tensor& y);
void add_convolution_on(Cuda, const ConvolutionPlan& plan, const Tensor& residual, const Tensor& x,
                        const Tensor& mask, const Tensor& weight, const tensor::RowDropout& dropout,
                        Tensor& y);
void masked_adjoint_on(Cpu, const ConvolutionPlan& plan, const Tensor& dy, const Tensor& mask,
                       const Tensor& weight, Tensor& dx);
void masked_adjoint_on(Cuda, const ConvolutionPlan& plan, const Tensor& dy, const Tensor& mask,
                       const Tensor& weight, Tensor& dx);

/// dweight[r T + t, e] = sum of dy[b, n, e] times what tap (r, t) reads of mask x there.
/// x, dy: [B, N, E], mask: [B, N], dweight: [R T, E].
void convolution_weight_on(Cpu, const ConvolutionPlan& plan, const Tensor& x, const Tensor& mask,
                           const Tensor& dy, Tensor& dweight);
void convolution_weight_on(Cuda, const ConvolutionPlan& plan, const Tensor& x, const Tensor& mask,
                           const Tensor& dy, Tensor& dweight);

}  // namespace skytape::nn
