// One axis of a shape singled out: any tensor seen as [outer, n, inner].
#pragma once

#include <cstdint>

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

}  // namespace skytape::tensor
