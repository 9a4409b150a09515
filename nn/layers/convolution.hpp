// A depthwise convolution parallel to attention: every channel is mixed with its neighbours' alone.
//
// Notation: B batch, N positions of this batch, E width, T taps in a row, R rows of taps.
#pragma once

#include <cstdint>

#include "autograd/tape.hpp"
#include "tensor/core/tensor.hpp"
#include "tensor/random/dropout.hpp"
#include "tensor/tokens/row_dropout.hpp"

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

// The two builds of the convolution's kernels (convolution.kernel.cpp).

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
