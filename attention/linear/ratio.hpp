// Numerator over normaliser, row by row, with both side by side in one array.
//
// Such arrays come from values with a column of ones (the mask) appended: one product gives both.
#pragma once

#include "tensor/core/tensor.hpp"

namespace skytape::attention {

/// A ratio, and the tensors that its gradient is made from.
struct Ratio {
  Tensor out;         // [B, H, N, D]
  Tensor normaliser;  // [B, H, N]
};

/// x [B, H, N, D + 1] -> x[…, :D] / x[…, D], zero where the normaliser x[…, D] is zero.
[[nodiscard]] Ratio ratio(const Tensor& x);

/// dx [B, H, N, D + 1]: with z the normaliser, dout / z in the first D columns and
/// -row_sum(dout out) / z in the last; zero where z is.
[[nodiscard]] Tensor ratio_backward(const Ratio& r, const Tensor& dout);

/// mask_rows(v) with the mask as last column: [B, H, N, D] -> [B, H, N, D + 1].
[[nodiscard]] Tensor with_mask_column(const Tensor& v, const Tensor& mask);

// The two builds of its kernels (ratio.kernel.cpp).
void ratio_on(Cpu, const Tensor& x, Ratio& r);
void ratio_on(Cuda, const Tensor& x, Ratio& r);
void ratio_backward_on(Cpu, const Ratio& r, const Tensor& dout, Tensor& dx);
void ratio_backward_on(Cuda, const Ratio& r, const Tensor& dout, Tensor& dx);

}  // namespace skytape::attention
