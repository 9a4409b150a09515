#include "tensor/movement/layout.hpp"

#include <algorithm>

#include "tensor/core/on_device.hpp"
#include "tensor/kernels/axis.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/launch/strided.hpp"

namespace skytape::tensor {
namespace {

/// Bytes of an entry, which is moved as a word of 4 or 8.
std::size_t word_of(const Tensor& x) {
  ENSURE(x.dtype() != DType::bf16, "moving entries: expected f32, f64 or i32, got ", x);
  return size_of(x.dtype());
}

/// Copies entries of x, from entry `x_begin` on with strides a, to y, from `y_begin` on with b.
void copy_strided(const Shape& shape, const Tensor& x, std::int64_t x_begin, const Strides& a,
                  Tensor& y, std::int64_t y_begin, const Strides& b) {
  const auto size = static_cast<std::int64_t>(word_of(x));
  const std::byte* const from = static_cast<const std::byte*>(x.raw()) + x_begin * size;
  std::byte* const to = static_cast<std::byte*>(y.raw()) + y_begin * size;
  const StridedLoop loop(x.device(), shape, a, b);
  on_device(x.device(), [&](auto tag) { copy_strided_on(tag, loop, word_of(x), from, to); });
}

/// Copies a block [outer, n, inner] whose slabs [n, inner] lie x_slab and y_slab entries apart.
void copy_slabs(const AxisView& block, const Tensor& x, std::int64_t x_begin, std::int64_t x_slab,
                Tensor& y, std::int64_t y_begin, std::int64_t y_slab) {
  copy_strided({block.outer, block.n * block.inner}, x, x_begin, {x_slab, 1}, y, y_begin,
               {y_slab, 1});
}

void transpose_into(std::int64_t batch, std::int64_t n, std::int64_t m, const Tensor& x,
                    Tensor& y) {
  on_device(x.device(),
            [&](auto tag) { transpose_on(tag, batch, n, m, word_of(x), x.raw(), y.raw()); });
}

}  // namespace

Tensor transpose(const Tensor& x) {
  ENSURE(x.defined() && x.rank() >= 2, "transpose: expected [..., n, m], got ", x);
  const std::int64_t n = x.size(-2), m = x.size(-1);
  Tensor y = empty_like(x, x.shape().with(-2, m).with(-1, n));  // [..., m, n]
  transpose_into(x.shape().first(x.rank() - 2).numel(), n, m, x, y);
  return y;
}

Tensor swap_middle(const Tensor& x) {
  ENSURE(x.defined() && x.rank() == 4, "swap_middle: expected [B, N, H, D], got ", x);
  const std::int64_t batch = x.size(0), n = x.size(1), h = x.size(2), d = x.size(3);
  Tensor y = empty_like(x, {batch, h, n, d});  // [B, H, N, D]
  if (d == 1) {
    transpose_into(batch, n, h, x, y);
  } else {
    copy_strided(y.shape(), x, 0, {n * h * d, d, h * d, 1}, y, 0, {n * h * d, n * d, d, 1});
  }
  return y;
}

Tensor concat(std::span<const Tensor> parts, int axis) {
  ENSURE(!parts.empty(), "concat: expected at least one part, got none");
  const Tensor& first = parts[0];
  std::int64_t size = 0;
  for (const Tensor& part : parts) {
    require_same_kind("concat", {&first, &part});
    size += view_axis("concat", part, axis).n;
    ENSURE(part.rank() == first.rank() && part.shape().with(axis, 0) == first.shape().with(axis, 0),
           "concat along axis ", axis, ": sizes of other axes differ: ", first, " and ", part);
  }
  Tensor y = empty_like(first, first.shape().with(axis, size));
  std::int64_t begin = 0;
  for (const Tensor& part : parts) {
    const AxisView block = view_axis("concat", part, axis);  // [outer, n, inner]
    const std::int64_t slab = block.n * block.inner;
    copy_slabs(block, part, 0, slab, y, begin * block.inner, size * block.inner);
    begin += block.n;
  }
  return y;
}

Tensor narrow(const Tensor& x, int axis, std::int64_t begin, std::int64_t end) {
  ENSURE(x.defined(), "narrow: the tensor is undefined");
  AxisView block = view_axis("narrow", x, axis);  // [outer, n, inner]
  ENSURE(0 <= begin && begin <= end && end <= block.n, "narrow: [", begin, ", ", end, ") of axis ",
         axis, " of ", x);
  const std::int64_t slab = block.n * block.inner;
  block.n = end - begin;
  Tensor y = empty_like(x, x.shape().with(axis, block.n));
  copy_slabs(block, x, begin * block.inner, slab, y, 0, block.n * block.inner);
  return y;
}

Tensor narrow_backward(const Tensor& dy, int axis, std::int64_t begin, std::int64_t size) {
  ENSURE(dy.defined(), "narrow_backward: the tensor is undefined");
  const AxisView block = view_axis("narrow_backward", dy, axis);  // [outer, n, inner]
  ENSURE(0 <= begin && begin + block.n <= size, "narrow_backward: ", dy, " does not fit at ", begin,
         " of ", size, " entries of axis ", axis);
  Tensor dx = zeros_like(dy, dy.shape().with(axis, size));
  copy_slabs(block, dy, 0, block.n * block.inner, dx, begin * block.inner, size * block.inner);
  return dx;
}

Tensor expand(const Tensor& x, const Shape& shape) {
  ENSURE(x.defined(), "expand: the tensor is undefined");
  ENSURE(x.rank() <= shape.rank() && broadcast_shape("expand", x.shape(), shape) == shape,
         "expand: ", x, " does not broadcast to ", shape);
  Tensor y = empty_like(x, shape);
  copy_strided(shape, x, 0, broadcast_strides(x.shape(), shape), y, 0,
               broadcast_strides(shape, shape));
  return y;
}

}  // namespace skytape::tensor
