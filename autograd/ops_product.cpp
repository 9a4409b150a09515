// Matrix products.
#include "autograd/ops.hpp"
#include "tensor/gemm/gemm.hpp"
#include "tensor/kernels/reduce.hpp"
#include "tensor/movement/layout.hpp"

namespace skytape {

namespace {

Op flip(Op op) { return op == Op::none ? Op::transpose : Op::none; }

/// x as one matrix [rows, cols]: leading axes joined.
Tensor as_matrix(const Tensor& x) { return x.reshape({x.rows(), x.cols()}); }

/// op(x) op(y) as the gradient of `operand`: summed over the batch where that is a matrix which the
/// batch shares.
Tensor gradient_of(const Tensor& operand, const Tensor& x, Op op_x, const Tensor& y, Op op_y) {
  const bool shared = operand.rank() == 2 && x.rank() > 2;
  return shared ? tensor::matmul_sum(x, y, op_x, op_y) : tensor::matmul(x, y, op_x, op_y);
}

}  // namespace

// y = op(a) op(b). With A = op(a) and B = op(b): dA = dy Bᵀ and dB = Aᵀ dy; a transposed operand
// takes the transposed product.
Var matmul(Var a, Var b, Op op_a, Op op_b) {
  Tensor y = tensor::matmul(a.value(), b.value(), op_a, op_b);
  return record("matmul", {a, b}, y,
                [a = a.value(), b = b.value(), op_a, op_b](const Tensor& dy, Grads& g) {
                  if (g.needs(0)) {
                    g.add(0, op_a == Op::none ? gradient_of(a, dy, Op::none, b, flip(op_b))
                                              : gradient_of(a, b, op_b, dy, Op::transpose));
                  }
                  if (g.needs(1)) {
                    g.add(1, op_b == Op::none ? gradient_of(b, a, flip(op_a), dy, Op::none)
                                              : gradient_of(b, dy, Op::transpose, a, op_a));
                  }
                });
}

Var linear(Var x, Var weight, Var bias) {
  const Tensor& w = weight.value();  // [out, in]
  ENSURE(w.rank() == 2 && x.shape().rank() >= 1 && x.size(-1) == w.size(1),
         "linear: expected x [..., in], weight [out, in], got ", x.value(), ", ", w);
  require_same_kind("linear", {&x.value(), &w});
  const Shape shape = x.shape().with(-1, w.size(0));  // [..., out]
  const Tensor xm = as_matrix(x.value());             // [rows, in]
  Tensor y;                                           // [rows, out]
  if (bias.defined()) {
    ENSURE(bias.shape() == Shape({w.size(0)}), "linear: expected bias [", w.size(0), "], got ",
           bias.value());
    require_same_kind("linear", {&w, &bias.value()});
    y = tensor::expand(bias.value(), {xm.size(0), w.size(0)});
    tensor::gemm(xm, Op::none, w, Op::transpose, y, 1, 1);  // onto the bias: one pass less
  } else {
    y = tensor::matmul(xm, w, Op::none, Op::transpose);
  }
  return record("linear", {x, weight, bias}, y.reshape(shape), [xm, w](const Tensor& dy, Grads& g) {
    const Tensor d = as_matrix(dy);  // [rows, out]
    if (g.needs(0)) {
      const Tensor dx = tensor::matmul(d, w);  // dx = dy W
      g.add(0, dx.reshape(dy.shape().with(-1, w.size(1))));
    }
    if (g.needs(1)) g.add(1, tensor::matmul(d, xm, Op::transpose, Op::none));  // dW = dyᵀ x
    if (g.needs(2)) g.add(2, tensor::sum(d, 0));                               // db
  });
}

}  // namespace skytape
