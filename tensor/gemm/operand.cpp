#include "tensor/gemm/operand.hpp"

#include "tensor/core/on_device.hpp"
#include "tensor/gemm/gemm_plan.hpp"
#include "tensor/gemm/precision.hpp"
#include "tensor/kernels/reduce.hpp"

namespace skytape::tensor {
namespace {

bool is_rounded(const Tensor& x) {
  return x.dtype() == DType::f32 && precision(x.device()) == Precision::bf16;
}

}  // namespace

Tensor as_multiplied(const Tensor& x) {
  if (!is_rounded(x)) return x;
  Tensor y = empty_like(x);
  on_device(x.device(), [&](auto tag) { round_to_bf16_on(tag, x, y); });
  return y;
}

Tensor multiplied_row_dot(const Tensor& x, const Tensor& y) {
  if (!is_rounded(x)) return row_dot(x, y);
  require_same_kind("multiplied_row_dot", {&x, &y});
  ENSURE(x.rank() > 0 && x.shape() == y.shape(), "multiplied_row_dot: shapes differ: ", x, ", ", y);
  Tensor sums = empty_like(x, x.shape().first(x.rank() - 1));
  on_device(x.device(), [&](auto tag) { bf16_row_dot_on(tag, x, y, sums); });
  return sums;
}

}  // namespace skytape::tensor
