#include "tests/support/both_ways.hpp"

#include "autograd/ops.hpp"
#include "tensor/gemm/gemm.hpp"

namespace skytape::test {

Var composed_linear(Way way, Var x, Var weight, Var bias) {
  if (way == Way::composed) return linear(x, weight, bias);
  const Precision precision = way == Way::composed_of_tf32 ? Precision::tf32 : Precision::bf16;
  const auto rows = [precision](const Tensor& t) {  // [rows, last axis], rounded
    const Tensor rounded = rounded_as_operand(t.to(Device::cpu), precision).to(t.device());
    return rounded.reshape({t.numel() / t.size(-1), t.size(-1)});
  };
  const Tensor a = rows(x.value()), w = rows(weight.value());  // [rows, in], [out, in]
  const Shape shape = x.shape().with(-1, w.size(0));           // [..., out]
  const Tensor y = tensor::matmul(a, w, Op::none, Op::transpose).reshape(shape);
  const Var product = record("product", {x, weight}, y, [=](const Tensor& dy, Grads& g) {
    const Tensor d = rows(dy);  // [rows, out]
    g.add(0, tensor::matmul(d, w).reshape(dy.shape().with(-1, w.size(1))));
    g.add(1, tensor::matmul(d, a, Op::transpose, Op::none));
  });
  return bias.defined() ? product + bias : product;
}

}  // namespace skytape::test
