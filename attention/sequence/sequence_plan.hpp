// The two builds of the kernels along the sequence (sequence.kernel.cpp).
#pragma once

#include <cstdint>

#include "attention/sequence/sequence.hpp"
#include "tensor/core/tensor.hpp"

namespace skytape::attention {

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
