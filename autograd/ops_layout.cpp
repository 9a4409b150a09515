// Ops that move entries without computing: the derivative moves them back.
#include <vector>

#include "autograd/ops.hpp"
#include "tensor/kernels/reduce.hpp"
#include "tensor/movement/gather.hpp"
#include "tensor/movement/layout.hpp"

namespace skytape {

Var reshape(Var x, const Shape& shape) {
  return record("reshape", {x}, x.value().reshape(shape),
                [from = x.shape()](const Tensor& dy, Grads& g) { g.add(0, dy.reshape(from)); });
}

Var transpose(Var x) {
  return record("transpose", {x}, tensor::transpose(x.value()),
                [](const Tensor& dy, Grads& g) { g.add(0, tensor::transpose(dy)); });
}

Var swap_middle(Var x) {
  return record("swap_middle", {x}, tensor::swap_middle(x.value()),
                [](const Tensor& dy, Grads& g) { g.add(0, tensor::swap_middle(dy)); });
}

Var concat(std::span<const Var> parts, int axis) {
  ENSURE(!parts.empty(), "concat: expected at least one part, got none");
  std::vector<Tensor> values;
  std::vector<std::int64_t> ends;  // of each part along the axis
  for (const Var& part : parts) {
    values.push_back(part.value());
    ends.push_back((ends.empty() ? 0 : ends.back()) + part.size(axis));
  }
  return parts[0].tape().record("concat", parts, tensor::concat(values, axis),
                                [ends, axis](const Tensor& dy, Grads& g) {
                                  std::int64_t begin = 0;
                                  for (std::size_t i = 0; i < ends.size(); begin = ends[i++]) {
                                    const int part = static_cast<int>(i);
                                    if (g.needs(part))
                                      g.add(part, tensor::narrow(dy, axis, begin, ends[i]));
                                  }
                                });
}

Var narrow(Var x, int axis, std::int64_t begin, std::int64_t end) {
  return record("narrow", {x}, tensor::narrow(x.value(), axis, begin, end),
                [axis, begin, size = x.size(axis)](const Tensor& dy, Grads& g) {
                  g.add(0, tensor::narrow_backward(dy, axis, begin, size));
                });
}

Var expand(Var x, const Shape& shape) {
  return record(
      "expand", {x}, tensor::expand(x.value(), shape),
      [from = x.shape()](const Tensor& dy, Grads& g) { g.add(0, tensor::sum_to_shape(dy, from)); });
}

Var gather_rows(Var x, const Tensor& index) {
  return record("gather_rows", {x}, tensor::gather_rows(x.value(), index),
                [shape = x.shape(), index](const Tensor& dy, Grads& g) {
                  Tensor dx = zeros_like(dy, shape);
                  tensor::scatter_add_rows(dx, index, dy);
                  g.add(0, dx);
                });
}

Var scatter_rows(Var y, const Tensor& index, std::int64_t n) {
  const Tensor& rows = y.value();  // [..., d, p]
  ENSURE(rows.rank() >= 2 && n >= 0, "scatter_rows: expected rows [..., d, p] and n >= 0, got ",
         rows, ", n = ", n);
  Tensor x = zeros_like(rows, rows.shape().with(-2, n));  // [..., n, p]
  tensor::scatter_add_rows(x, index, rows);
  return record("scatter_rows", {y}, x,
                [index](const Tensor& dy, Grads& g) { g.add(0, tensor::gather_rows(dy, index)); });
}

}  // namespace skytape
