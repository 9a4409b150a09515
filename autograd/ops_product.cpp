// Matrix products.
#include "autograd/ops.hpp"
#include "tensor/gemm.hpp"
#include "tensor/layout.hpp"
#include "tensor/reduce.hpp"

namespace skytape {

namespace {

Op flip(Op op) { return op == Op::none ? Op::transpose : Op::none; }

/// x as one matrix [rows, cols]: leading axes joined.
Tensor as_matrix(const Tensor& x) { return x.reshape({x.rows(), x.cols()}); }

}  // namespace

// y = op(a) op(b). With A = op(a) and B = op(b): dA = dy Bᵀ and dB = Aᵀ dy; a transposed operand
// takes the transposed product. A matrix shared by the batch sums its gradient over the batch.
Var matmul(Var a, Var b, Op op_a, Op op_b) {
  Tensor y = tensor::matmul(a.value(), b.value(), op_a, op_b);
  return record("matmul", {a, b}, y,
                [a = a.value(), b = b.value(), op_a, op_b](const Tensor& dy, Grads& g) {
                  if (g.needs(0)) {
                    const Tensor da = op_a == Op::none ? tensor::matmul(dy, b, Op::none, flip(op_b))
                                                       : tensor::matmul(b, dy, op_b, Op::transpose);
                    g.add(0, tensor::sum_to_shape(da, a.shape()));
                  }
                  if (g.needs(1)) {
                    const Tensor db = op_b == Op::none ? tensor::matmul(a, dy, flip(op_a), Op::none)
                                                       : tensor::matmul(dy, a, Op::transpose, op_a);
                    g.add(1, tensor::sum_to_shape(db, b.shape()));
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
