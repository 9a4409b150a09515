// Operations along the sequence that Nystromformer needs: means of consecutive rows, and the
// depthwise convolution of the values.
//
// Letters: B batch, H heads, N positions, D head width, L segments, W window of the convolution
// (odd).
#pragma once

#include <cstdint>

#include "tensor/core/tensor.hpp"

namespace skytape::attention {

/// Means over L consecutive segments of the `nominal` positions: x [B, H, N, D] -> [B, H, L, D].
/// Segment j holds positions floor(j nominal / L) to floor((j + 1) nominal / L) - 1; positions from
/// N on count as zero rows, so trimming a padded (zero) tail changes nothing. L <= nominal.
[[nodiscard]] Tensor segment_means(const Tensor& x, std::int64_t segments, std::int64_t nominal);

/// Its adjoint, added in place: dx [B, H, N, D] += dmeans [B, H, L, D] of its segment / its size.
void add_segment_means_backward(const Tensor& dmeans, std::int64_t nominal, Tensor& dx);

/// y[b, h, i] = sum_t weight[h, t] x[b, h, i + t - W / 2], zero outside; weight: [H, 1, W, 1] as
/// PyTorch's depthwise Conv2d holds it. x: [B, H, N, D] -> [B, H, N, D].
[[nodiscard]] Tensor depthwise_convolution(const Tensor& x, const Tensor& weight);
struct ConvolutionGradients {
  Tensor dx;       // [B, H, N, D]
  Tensor dweight;  // [H, 1, W, 1]
};
[[nodiscard]] ConvolutionGradients depthwise_convolution_backward(const Tensor& x,
                                                                  const Tensor& weight,
                                                                  const Tensor& dy);

}  // namespace skytape::attention
