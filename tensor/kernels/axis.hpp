// One axis of a shape singled out: any tensor seen as [outer, n, inner].
#pragma once

#include <cstdint>
#include <vector>

#include "tensor/core/tensor.hpp"

namespace skytape::tensor {

struct AxisView {
  std::int64_t outer = 1;  // product of the sizes before the axis
  std::int64_t n = 1;      // the axis itself
  std::int64_t inner = 1;  // product of the sizes after it
};

/// x seen along `axis`; negative axes count from the end. Throws, naming `op`, if x lacks the axis.
[[nodiscard]] inline AxisView view_axis(const char* op, const Tensor& x, int axis) {
  ENSURE(axis >= -x.rank() && axis < x.rank(), op, ": axis ", axis, " of ", x);
  const int index = axis < 0 ? axis + x.rank() : axis;
  AxisView view{x.shape().first(index).numel(), x.size(index), 1};
  for (int i = index + 1; i < x.rank(); ++i) view.inner *= x.size(i);
  return view;
}

/// `shape` with an axis of length `size` put in: afterwards it is the axis `axis` of the result.
[[nodiscard]] inline Shape insert_axis(const char* op, const Shape& shape, int axis,
                                       std::int64_t size) {
  const int rank = shape.rank() + 1;
  ENSURE(axis >= -rank && axis < rank, op, ": cannot put an axis ", axis, " into ", shape);
  std::vector<std::int64_t> sizes(shape.begin(), shape.end());
  sizes.insert(sizes.begin() + (axis < 0 ? axis + rank : axis), size);
  return Shape(std::span<const std::int64_t>(sizes));
}

}  // namespace skytape::tensor
