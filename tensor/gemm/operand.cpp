#include "tensor/gemm/operand.hpp"

#include "tensor/core/on_device.hpp"
#include "tensor/gemm/gemm.hpp"
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

DType operand_type(const Tensor& x, const Tensor& weight) {
  constexpr std::int64_t kFewestRows = 1024, kNarrowest = 256;
  const bool is_matrix = weight.defined() && weight.rank() == 2 && x.defined();
  if (!is_matrix || weight.device() != Device::cuda || !is_rounded(weight)) return weight.dtype();
  const auto fits = [](std::int64_t size) { return size >= kNarrowest && size % 8 == 0; };
  const bool pays = x.rows() >= kFewestRows && fits(weight.size(0)) && fits(weight.size(1));
  return pays ? DType::bf16 : weight.dtype();
}

namespace {

/// Memory for x in bf16.
Tensor memory_of_operand(const char* op, const Tensor& x) {
  ENSURE(x.defined() && x.dtype() == DType::f32 && x.device() == Device::cuda && x.numel() % 4 == 0,
         op, ": expected f32 numbers on cuda, a multiple of 4, got ", x);
  return Tensor::empty(x.shape(), DType::bf16, Device::cuda);
}

}  // namespace

Tensor as_operand(const Tensor& x, DType type) {
  if (type != DType::bf16) return x;
  Tensor y = memory_of_operand("as_operand", x);
  on_cuda([&](auto tag) { round_operand_on(tag, x, y); });
  return y;
}

OperandAndSums operand_and_sums(const Tensor& x, DType type) {
  if (type != DType::bf16) return {x, sum(x, 0)};
  ENSURE(x.rank() == 2, "operand_and_sums: expected x [rows, n], got ", x);
  OperandAndSums found{memory_of_operand("operand_and_sums", x), empty_like(x, {x.size(1)})};
  on_cuda([&](auto tag) { round_and_sum_on(tag, x, found.operand, found.sums); });
  return found;
}

OperandAndSums operand_and_sums(const Tensor& x, DType type, const Dropout& options) {
  ENSURE(x.rank() == 3, "operand_and_sums: expected x [B, N, n], got ", x);
  const DropoutPlan plan = dropout_plan("operand_and_sums", x.shape(), x.device(), options);
  const Tensor rows = x.reshape({x.rows(), x.cols()});
  if (plan.threshold == 0) return operand_and_sums(rows, type);
  if (type != DType::bf16) return operand_and_sums(dropout(x, options).reshape(rows.shape()), type);
  OperandAndSums found{memory_of_operand("operand_and_sums", rows), empty_like(x, {x.cols()})};
  on_cuda([&](auto tag) { drop_round_and_sum_on(tag, plan, rows, found.operand, found.sums); });
  return found;
}

Tensor operand_sums(const Tensor& operand) {
  if (operand.dtype() != DType::bf16) return sum(operand, 0);
  ENSURE(operand.rank() == 2 && operand.device() == Device::cuda,
         "operand_sums: expected an operand [rows, n] on cuda, got ", operand);
  Tensor sums = Tensor::empty({operand.size(1)}, DType::f32, Device::cuda);
  on_cuda([&](auto tag) { sum_operand_on(tag, operand, sums); });
  return sums;
}

Tensor add_linear(const Tensor& residual, const Tensor& x, const Tensor& weight, const Tensor& bias,
                  const Dropout& dropout) {
  // The library adds a bias to what it finds in memory: as rows, which are written first. With large
  // operands the last pass is the cheaper place.
  const bool is_last = x.dtype() == DType::bf16;
  const Tensor w = as_operand(weight, x.dtype());
  const Tensor y = is_last ? matmul(x, w, Op::none, Op::transpose) : linear(x, w, bias);
  return add_dropout(residual, y.reshape(residual.shape()), is_last ? bias : Tensor(), dropout);
}

}  // namespace skytape::tensor
