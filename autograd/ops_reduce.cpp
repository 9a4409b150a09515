// Reductions and the row functions built on them.
#include "tensor/kernels/reduce.hpp"

#include "autograd/ops.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/movement/layout.hpp"
#include "tensor/norm/softmax.hpp"

namespace skytape {

Var sum(Var x, int axis, bool keep) {
  const Shape shape = x.shape();
  return record(
      "sum", {x}, tensor::sum(x.value(), axis, keep), [shape, axis](const Tensor& dy, Grads& g) {
        g.add(0,
              tensor::expand(dy.reshape(shape.with(axis, 1)), shape));  // every entry gets its dy
      });
}

Var mean(Var x, int axis, bool keep) {
  const Shape shape = x.shape();
  ENSURE(shape[axis] > 0, "mean: axis ", axis, " of ", x.value(), " is empty");
  const double share = 1.0 / static_cast<double>(shape[axis]);
  return record("mean", {x}, tensor::affine(tensor::sum(x.value(), axis, keep), share),
                [shape, axis, share](const Tensor& dy, Grads& g) {
                  const Tensor d = tensor::affine(dy, share).reshape(shape.with(axis, 1));
                  g.add(0, tensor::expand(d, shape));  // dx = dy / n
                });
}

Var max(Var x, int axis, bool keep) {
  const Shape shape = x.shape();
  const auto [y, position] = tensor::max(x.value(), axis);
  return record("max", {x}, keep ? y.reshape(shape.with(axis, 1)) : y,
                [shape, axis, position = position](const Tensor& dy, Grads& g) {
                  const Tensor d = dy.reshape(shape.without(axis));
                  g.add(0, tensor::max_backward(d, position, axis, shape[axis]));
                });
}

Var sum_all(Var x) {
  return record(
      "sum_all", {x}, tensor::sum_all(x.value()),
      [shape = x.shape()](const Tensor& dy, Grads& g) { g.add(0, tensor::expand(dy, shape)); });
}

Var softmax(Var x) {
  Tensor y = tensor::softmax(x.value());
  return record("softmax", {x}, y, [y](const Tensor& dy, Grads& g) {
    g.add(0, tensor::softmax_backward(y, dy));  // dx = y (dy - sum(y dy))
  });
}

Var logsumexp(Var x) {
  Tensor y = tensor::logsumexp(x.value());
  return record("logsumexp", {x}, y, [x = x.value(), y](const Tensor& dy, Grads& g) {
    g.add(0, tensor::logsumexp_backward(x, y, dy));  // dx = dy exp(x - y)
  });
}

}  // namespace skytape
