// Operands as matrix products read them.
#pragma once

#include "tensor/core/tensor.hpp"

namespace skytape::tensor {

/// Returns the values that products of x compute with: x rounded to bf16 where that is the device's
/// precision and x is f32, else x itself. Code that subtracts a product from a norm takes both of
/// these: with norms of the unrounded rows |x|^2 - 2 x.x + |x|^2 is not zero.
[[nodiscard]] Tensor as_multiplied(const Tensor& x);
/// Row sums of as_multiplied(x) times y, entrywise, in one pass: [..., n] -> [...].
[[nodiscard]] Tensor multiplied_row_dot(const Tensor& x, const Tensor& y);

}  // namespace skytape::tensor
