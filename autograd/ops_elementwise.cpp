// Elementwise ops. Broadcasting is undone by sum_to_shape, the adjoint of repeating. The unary ones
// are made from the lines of tensor/kernels/elementwise.def.
#include "autograd/ops.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/kernels/reduce.hpp"

namespace skytape {

using tensor::Unary;

Var operator+(Var a, Var b) {
  Tensor y = tensor::add(a.value(), b.value());
  return record("add", {a, b}, y, [sa = a.shape(), sb = b.shape()](const Tensor& dy, Grads& g) {
    if (g.needs(0)) g.add(0, tensor::sum_to_shape(dy, sa));  // da = dy
    if (g.needs(1)) g.add(1, tensor::sum_to_shape(dy, sb));  // db = dy
  });
}

Var operator-(Var a, Var b) {
  Tensor y = tensor::subtract(a.value(), b.value());
  return record("subtract", {a, b}, y,
                [sa = a.shape(), sb = b.shape()](const Tensor& dy, Grads& g) {
                  if (g.needs(0)) g.add(0, tensor::sum_to_shape(dy, sa));  // da = dy
                  if (g.needs(1))
                    g.add(1, tensor::affine(tensor::sum_to_shape(dy, sb), -1));  // db = -dy
                });
}

Var operator*(Var a, Var b) {
  Tensor y = tensor::multiply(a.value(), b.value());
  return record("multiply", {a, b}, y, [a = a.value(), b = b.value()](const Tensor& dy, Grads& g) {
    if (g.needs(0)) g.add(0, tensor::sum_to_shape(tensor::multiply(dy, b), a.shape()));  // dy b
    if (g.needs(1)) g.add(1, tensor::sum_to_shape(tensor::multiply(dy, a), b.shape()));  // dy a
  });
}

Var operator/(Var a, Var b) {
  Tensor y = tensor::divide(a.value(), b.value());
  return record("divide", {a, b}, y,
                [y, sa = a.shape(), b = b.value()](const Tensor& dy, Grads& g) {
                  const Tensor da = tensor::divide(dy, b);  // da = dy / b, in y's shape
                  if (g.needs(0)) g.add(0, tensor::sum_to_shape(da, sa));
                  if (!g.needs(1)) return;
                  const Tensor db = tensor::affine(tensor::multiply(da, y), -1);  // db = -dy a / b²
                  g.add(1, tensor::sum_to_shape(db, b.shape()));
                });
}

Var affine(Var x, double scale, double shift) {
  return record("affine", {x}, tensor::affine(x.value(), scale, shift),
                [scale](const Tensor& dy, Grads& g) { g.add(0, tensor::affine(dy, scale)); });
}

}  // namespace skytape

// The unary functions, defined outside the namespace so that one without a declaration in ops.hpp
// does not compile.
#define UNARY(name, y, dy_dx)                                                            \
  skytape::Var skytape::name(Var x) {                                                    \
    return record(#name, {x}, tensor::unary(Unary::name, x.value()),                     \
                  [x = x.value()](const Tensor& dy, Grads& g) {                          \
                    g.add(0, tensor::unary_backward(Unary::name, x, dy)); /* dy f'(x) */ \
                  });                                                                    \
  }
#include "tensor/kernels/elementwise.def"
