// Matrix products.
#include "autograd/ops.hpp"
#include "tensor/gemm/gemm.hpp"
#include "tensor/gemm/operand.hpp"

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
  require_same_kind("linear", {&x.value(), &weight.value()});
  const DType type = tensor::operand_type(x.value(), weight.value());
  const Tensor from = tensor::as_operand(x.value(), type);    // [..., in]
  const Tensor w = tensor::as_operand(weight.value(), type);  // [out, in]
  const Tensor y = tensor::linear(from, w, bias.defined() ? bias.value() : Tensor());
  return record("linear", {x, weight, bias}, y,
                [rows = as_matrix(from), w, type](const Tensor& dy, Grads& g) {
                  Tensor d = as_matrix(dy);  // [rows, out]
                  if (g.needs(2)) {          // db
                    const auto found = tensor::operand_and_sums(d, type);
                    d = found.operand;
                    g.add(2, found.sums);
                  } else {
                    d = tensor::as_operand(d, type);
                  }
                  if (g.needs(0)) {
                    const Tensor dx = tensor::matmul(d, w);  // dx = dy W
                    g.add(0, dx.reshape(dy.shape().with(-1, w.size(1))));
                  }
                  if (g.needs(1)) {  // dW = dyᵀ x
                    g.add(1, tensor::matmul(d, rows, Op::transpose, Op::none));
                  }
                });
}

}  // namespace skytape
