#include "tensor/gemm/gemm.hpp"

#include "tensor/core/on_device.hpp"
#include "tensor/gemm/gemm_plan.hpp"
#include "tensor/movement/layout.hpp"

namespace skytape::tensor {
namespace {

const char* mark(Op op) { return op == Op::transpose ? "ᵀ" : ""; }

/// Sizes and strides of a product; checks the shapes.
struct Product {
  GemmPlan plan;
  Shape shape;  // of the result
};

Product product_of(const char* op, const Tensor& a, Op op_a, const Tensor& b, Op op_b) {
  require_same_kind(op, {&a, &b});
  const auto shapes = [&] { return join("a ", a, mark(op_a), ", b ", b, mark(op_b)); };
  ENSURE(a.rank() >= 2 && b.rank() >= 2, op, ": operands need at least two axes: ", shapes());
  const bool swap_a = op_a == Op::transpose, swap_b = op_b == Op::transpose;
  const Shape lead_a = a.shape().first(a.rank() - 2), lead_b = b.shape().first(b.rank() - 2);
  ENSURE(lead_a == lead_b || a.rank() == 2 || b.rank() == 2, op,
         ": leading axes differ: ", shapes());
  GemmPlan p;
  p.op_a = op_a;
  p.op_b = op_b;
  p.m = a.size(swap_a ? -1 : -2);
  p.k = a.size(swap_a ? -2 : -1);
  p.n = b.size(swap_b ? -2 : -1);
  ENSURE(b.size(swap_b ? -1 : -2) == p.k, op, ": inner sizes differ: ", shapes());
  const Shape lead = a.rank() == 2 ? lead_b : lead_a;
  const Shape shape = lead.append(p.m).append(p.n);
  p.batch = lead.numel();
  p.stride_a = a.rank() == 2 ? 0 : p.m * p.k;
  p.stride_b = b.rank() == 2 ? 0 : p.k * p.n;
  if (b.rank() == 2 && !swap_a) {  // a shared right operand: one tall product
    p.m *= p.batch;
    p.batch = 1;
  }
  return {p, shape};
}

/// Products of bf16 operands have f32 results.
DType result_type(const Tensor& a) { return a.dtype() == DType::bf16 ? DType::f32 : a.dtype(); }

void require_result(const char* op, const Tensor& a, const Tensor& c) {
  ENSURE(c.defined(), op, ": an operand is undefined");
  ENSURE(c.dtype() == result_type(a) && c.device() == a.device(), op,
         ": operands differ in dtype or device: ", a, ", ", c);
}

void run(const GemmPlan& plan, const Tensor& a, const Tensor& b, Tensor& c) {
  if (c.numel() == 0) return;
  on_device(c.device(), [&](auto tag) { gemm_on(tag, plan, a, b, c); });
}

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b, Op op_a, Op op_b) {
  return matmul(a, b, op_a, op_b, result_type(a));
}

Tensor matmul(const Tensor& a, const Tensor& b, Op op_a, Op op_b, DType type) {
  const Product product = product_of("matmul", a, op_a, b, op_b);
  ENSURE(type == result_type(a) || (type == DType::bf16 && a.dtype() == DType::bf16),
         "matmul: no product of ", a, " and ", b, " is ", name(type));
  Tensor c = Tensor::empty(product.shape, type, a.device());  // [..., m, n]
  run(product.plan, a, b, c);
  return c;
}

Tensor matmul_sum(const Tensor& a, const Tensor& b, Op op_a, Op op_b) {
  const Product product = product_of("matmul_sum", a, op_a, b, op_b);
  ENSURE(a.rank() == b.rank(), "matmul_sum: leading axes differ: a ", a, ", b ", b);
  const GemmPlan& plan = product.plan;
  Tensor c = Tensor::empty({plan.m, plan.n}, result_type(a), a.device());
  if (c.numel() == 0) return c;
  if (a.numel() == 0 || b.numel() == 0) {  // nothing to add up
    c.fill(0);
    return c;
  }
  on_device(c.device(), [&](auto tag) { gemm_sum_on(tag, plan, a, b, c); });
  return c;
}

void gemm(const Tensor& a, Op op_a, const Tensor& b, Op op_b, Tensor& c, double alpha,
          double beta) {
  Product product = product_of("gemm", a, op_a, b, op_b);
  require_result("gemm", a, c);
  ENSURE(c.shape() == product.shape, "gemm: c ", c, " does not have the shape of the product ",
         product.shape, " of a ", a, mark(op_a), " and b ", b, mark(op_b));
  product.plan.alpha = alpha;
  product.plan.beta = beta;
  run(product.plan, a, b, c);
}

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  ENSURE(weight.rank() == 2 && x.rank() >= 1 && x.size(-1) == weight.size(1),
         "linear: expected x [..., in], weight [out, in], got ", x, ", ", weight);
  require_same_kind("linear", {&x, &weight});
  const std::int64_t out = weight.size(0);
  const Tensor rows = x.reshape({x.rows(), x.cols()});
  Tensor y;  // [rows, out]
  if (bias.defined()) {
    ENSURE(bias.shape() == Shape({out}), "linear: expected bias [", out, "], got ", bias);
    require_result("linear", weight, bias);
    y = expand(bias, {rows.size(0), out});
    gemm(rows, Op::none, weight, Op::transpose, y, 1, 1);  // onto the bias: one pass less
  } else {
    y = matmul(rows, weight, Op::none, Op::transpose);
  }
  return y.reshape(x.shape().with(-1, out));
}

}  // namespace skytape::tensor
