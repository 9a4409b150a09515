#include "tensor/kernels/reduce.hpp"

#include <limits>
#include <span>
#include <vector>

#include "tensor/core/on_device.hpp"
#include "tensor/core/tensor.hpp"
#include "tensor/kernels/axis.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/kernels/reduce_plan.hpp"

namespace skytape::tensor {
namespace {

/// x: [outer, n, inner] -> [outer, inner], returned in `shape`.
Tensor sum_view(const AxisView& view, const Tensor& x, const Shape& shape) {
  Tensor y = empty_like(x, shape);  // [outer, inner]
  on_device(x.device(), [&](auto tag) { sum_on(tag, view, x, y); });
  return y;
}

}  // namespace

Tensor sum(const Tensor& x, int axis, bool keep) {
  require_float("sum", x);
  const AxisView view = view_axis("sum", x, axis);
  return sum_view(view, x, keep ? x.shape().with(axis, 1) : x.shape().without(axis));
}

Tensor sum_all(const Tensor& x) {
  require_float("sum_all", x);
  return sum_view({1, x.numel(), 1}, x, Shape{});
}

Tensor token_counts(const Tensor& mask) {
  ENSURE(mask.defined() && mask.rank() == 2, "token_counts: expected a mask [B, N], got ", mask);
  const Tensor beyond_one = unary(Unary::relu, affine(sum(mask, 1), 1, -1));
  return affine(beyond_one, 1, 1).reshape({mask.size(0), 1});
}

Tensor sum_to_shape(const Tensor& x, const Shape& shape) {
  require_float("sum_to_shape", x);
  ENSURE(shape.rank() <= x.rank() && broadcast_shape("sum_to_shape", x.shape(), shape) == x.shape(),
         "sum_to_shape: ", shape, " does not broadcast to ", x);
  const int added = x.rank() - shape.rank();  // leading axes that the target lacks
  const auto repeated = [&](int axis) {
    return x.size(axis) != 1 && (axis < added || shape[axis - added] == 1);
  };
  // Neighbouring repeated axes are summed as one, from the innermost group outwards.
  Tensor y = x;
  std::int64_t inner = 1;
  for (int axis = x.rank() - 1; axis >= 0;) {
    if (!repeated(axis)) {
      inner *= x.size(axis--);
      continue;
    }
    std::int64_t n = 1;
    while (axis >= 0 && (repeated(axis) || x.size(axis) == 1)) n *= x.size(axis--);
    const std::int64_t outer = x.shape().first(axis + 1).numel();
    y = sum_view({outer, n, inner}, y, Shape{outer, inner});
  }
  return y.reshape(shape);
}

std::pair<Tensor, Tensor> max(const Tensor& x, int axis) {
  require_float("max", x);
  const AxisView view = view_axis("max", x, axis);
  ENSURE(view.n > 0, "max: axis ", axis, " of ", x, " is empty");
  ENSURE(view.n <= std::numeric_limits<std::int32_t>::max(), "max: axis ", axis, " of ", x,
         " is too long for i32 positions");
  const Shape shape = x.shape().without(axis);
  Tensor y = empty_like(x, shape);                                 // [outer, inner]
  Tensor position = Tensor::empty(shape, DType::i32, x.device());  // [outer, inner]
  on_device(x.device(), [&](auto tag) {
    if (view.inner == 1) {
      max_of_rows_on(tag, view, x, y, position);
    } else {
      max_of_columns_on(tag, view, x, y, position);
    }
  });
  return {y, position};
}

namespace {

/// The shape whose axis `axis` has length `size`, and which is `shape` without it.
Shape insert_axis(const Shape& shape, int axis, std::int64_t size) {
  const int rank = shape.rank() + 1;
  ENSURE(axis >= -rank && axis < rank, "max_backward: cannot put an axis ", axis, " into ", shape);
  std::vector<std::int64_t> sizes(shape.begin(), shape.end());
  sizes.insert(sizes.begin() + (axis < 0 ? axis + rank : axis), size);
  return Shape(std::span<const std::int64_t>(sizes));
}

}  // namespace

Tensor max_backward(const Tensor& dy, const Tensor& position, int axis, std::int64_t size) {
  require_float("max_backward", dy);
  ENSURE(position.defined() && position.dtype() == DType::i32 && position.shape() == dy.shape() &&
             position.device() == dy.device(),
         "max_backward: expected i32 positions like dy ", dy, ", got ", position);
  if (dy.device() == Device::cpu) {
    for (const std::int32_t p : std::span(position.data<std::int32_t>(), position.numel())) {
      ENSURE(p >= 0 && p < size, "max_backward: position ", p, " is outside [0, ", size, ")");
    }
  }
  const Shape shape = insert_axis(dy.shape(), axis, size);
  Tensor dx = zeros_like(dy, shape);  // [outer, size, inner]
  const AxisView view = view_axis("max_backward", dx, axis);
  on_device(dy.device(), [&](auto tag) { max_backward_on(tag, view, dy, position, dx); });
  return dx;
}

Tensor row_dot(const Tensor& a, const Tensor& b) {
  require_float("row_dot", a);
  require_same_kind("row_dot", {&a, &b});
  ENSURE(a.shape() == b.shape() && a.rank() > 0,
         "row_dot: expected two equal shapes [..., n], got ", a, " and ", b);
  Tensor y = empty_like(a, a.shape().without(-1));  // [...]
  on_device(a.device(), [&](auto tag) { row_dot_on(tag, a, b, y); });
  return y;
}

}  // namespace skytape::tensor
