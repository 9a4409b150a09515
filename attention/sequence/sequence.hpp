// Operations along the sequence that Nystromformer needs: means of consecutive rows, and the
// depthwise convolution of the values.
//
// Notation: B batch, H heads, N positions, D head width, L segments, W window of the convolution
// (odd).
#pragma once

#include <cstdint>

#include "tensor/core/tensor.hpp"

namespace skytape::attention {

struct SegmentMeans {
  Tensor rows;   // scale mask x: [B, H, N, D]
  Tensor means;  // of these rows: [B, H, L, D]
};
/// Rows times scale and their position's mask, [B, N], and means over L consecutive segments of the
/// `nominal` positions. Segment j holds positions floor(j nominal / L) to floor((j + 1) nominal /
/// L) - 1; positions from N on count as zero rows, so trimming a padded (zero) tail changes
/// nothing. L <= nominal.
[[nodiscard]] SegmentMeans segment_means(const Tensor& x, const Tensor& mask, double scale,
                                         std::int64_t segments, std::int64_t nominal);

/// Its adjoint, in place: dx, the gradient of the rows, becomes x's own,
///   scale mask (dx + dmeans of its segment / its size).   dx: [B, H, N, D], dmeans: [B, H, L, D]
void segment_means_backward(const Tensor& dmeans, const Tensor& mask, double scale,
                            std::int64_t nominal, Tensor& dx);

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

// The two builds of the kernels behind these (sequence.kernel.cpp).

void segment_means_on(Cpu, const Tensor& x, const Tensor& mask, double scale, std::int64_t nominal,
                      SegmentMeans& result);
void segment_means_on(Cuda, const Tensor& x, const Tensor& mask, double scale, std::int64_t nominal,
                      SegmentMeans& result);

void segment_means_backward_on(Cpu, const Tensor& dmeans, const Tensor& mask, double scale,
                               std::int64_t nominal, Tensor& dx);
void segment_means_backward_on(Cuda, const Tensor& dmeans, const Tensor& mask, double scale,
                               std::int64_t nominal, Tensor& dx);

/// direction 1: y[i] = sum_t weight[t] x[i + t - W / 2]; -1: the adjoint.
void convolve_on(Cpu, const Tensor& x, const Tensor& weight, std::int64_t direction, Tensor& y);
void convolve_on(Cuda, const Tensor& x, const Tensor& weight, std::int64_t direction, Tensor& y);

void convolution_weight_backward_on(Cpu, const Tensor& x, const Tensor& dy, Tensor& dweight);
void convolution_weight_backward_on(Cuda, const Tensor& x, const Tensor& dy, Tensor& dweight);

}  // namespace skytape::attention
