// Elementwise ops. Broadcasting is undone by sum_to_shape, the adjoint of repeating.
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

namespace {

Var unary(const char* name, Unary f, Var x) {
  return record(name, {x}, tensor::unary(f, x.value()),
                [f, x = x.value()](const Tensor& dy, Grads& g) {
                  g.add(0, tensor::unary_backward(f, x, dy));  // dx = dy f'(x)
                });
}

}  // namespace

Var operator-(Var x) { return unary("negate", Unary::negate, x); }
Var exp(Var x) { return unary("exp", Unary::exp, x); }
Var log(Var x) { return unary("log", Unary::log, x); }
Var sqrt(Var x) { return unary("sqrt", Unary::sqrt, x); }
Var reciprocal(Var x) { return unary("reciprocal", Unary::reciprocal, x); }
Var square(Var x) { return unary("square", Unary::square, x); }
Var relu(Var x) { return unary("relu", Unary::relu, x); }
Var gelu(Var x) { return unary("gelu", Unary::gelu, x); }

}  // namespace skytape
