// Sums, means and maxima over one axis. Deterministic on either device.
#pragma once

#include <utility>

#include "tensor/core/tensor.hpp"

namespace skytape::tensor {

/// Sum over one axis, which is removed, or kept with size 1: [outer, n, inner] -> [outer, inner].
/// f32 sums are blockwise.
[[nodiscard]] Tensor sum(const Tensor& x, int axis, bool keep = false);
[[nodiscard]] Tensor sum_all(const Tensor& x);  ///< scalar

/// Real tokens of each row of a mask [B, N], at least one, to divide by: [B, 1].
[[nodiscard]] Tensor token_counts(const Tensor& mask);

/// Sums x over the axes that broadcasting had repeated, giving `shape` (undoes a broadcast).
[[nodiscard]] Tensor sum_to_shape(const Tensor& x, const Shape& shape);

/// Maximum over one axis and its position (i32, the first one on ties); the axis is removed.
[[nodiscard]] std::pair<Tensor, Tensor> max(const Tensor& x, int axis);
/// dx of max: dy at the stored positions, zero elsewhere. `size` is the length of the axis.
[[nodiscard]] Tensor max_backward(const Tensor& dy, const Tensor& position, int axis,
                                  std::int64_t size);

/// y[r] = sum_c a[r, c] b[r, c]; a, b: [..., n] -> [...]. The row_sum(G O) of softmax's gradient.
[[nodiscard]] Tensor row_dot(const Tensor& a, const Tensor& b);

}  // namespace skytape::tensor
