// O = N / d, row by row, with numerator and normaliser side by side in one array.
//
// Such arrays come from values with a column of ones (the mask) appended: one product gives both.
#pragma once

#include "tensor/core/tensor.hpp"

namespace skytape::attention {

/// x [B, H, N, D + 1] -> x[…, :D] / x[…, D]: [B, H, N, D]. Zero where the normaliser is zero.
[[nodiscard]] Tensor ratio(const Tensor& x);

/// dx [B, H, N, D + 1]: dN = dout / d, dd = -rs(dout out) / d; zero where the normaliser is.
[[nodiscard]] Tensor ratio_backward(const Tensor& x, const Tensor& out, const Tensor& dout);

/// mask_rows(v) with the mask as last column: [B, H, N, D] -> [B, H, N, D + 1].
[[nodiscard]] Tensor with_mask_column(const Tensor& v, const Tensor& mask);

}  // namespace skytape::attention
