#include "tensor/projection/merge_heads.hpp"

#include "tensor/core/on_device.hpp"
#include "tensor/gemm/gemm.hpp"
#include "tensor/gemm/operand.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/movement/layout.hpp"
#include "tensor/projection/heads_plan.hpp"
#include "tensor/projection/token_products.hpp"

namespace skytape::tensor {
namespace {

/// Heads side by side as an operand: [B, H, N, D] -> [B N, H D].
Tensor merged(const Tensor& a, DType type) {
  const Shape side_by_side{a.size(0) * a.size(2), a.size(1) * a.size(3)};
  if (type != DType::bf16) return swap_middle(a).reshape(side_by_side);
  Tensor rows = Tensor::empty(side_by_side, type, a.device());  // rounded on the way
  const HeadsPlan plan{a.size(0), a.size(2), side_by_side[1], 1, a.size(1), a.size(3)};
  on_cuda([&](auto tag) { merge_rows_on(tag, plan, a, rows); });
  return rows;
}

void require_heads(const char* op, const Tensor& x, const Tensor& a, const Tensor& weight) {
  require_same_kind(op, {&x, &a, &weight});
  ENSURE(x.rank() == 3 && a.rank() == 4 && a.size(0) == x.size(0) && a.size(2) == x.size(1), op,
         ": expected [B, N, E] and a [B, H, N, D], got ", x, ", ", a);
  ENSURE(weight.shape() == Shape({x.size(2), a.size(1) * a.size(3)}), op,
         ": expected a weight [E, H D] for ", x, " and a ", a, ", got ", weight);
}

TokenPlan plan_of(const Tensor& x, const Tensor& a, const Dropout& dropout) {
  return TokenPlan({x.size(0), x.size(1), x.size(2), 1, a.size(1), a.size(3)},
                   row_dropout("merge_heads", x, x.size(2), dropout));
}

bool is_one_kernel(const Tensor& x, const Tensor& a) {
  const std::int64_t e = x.cols();
  return (e == 16 || e == 32 || e == 64) && fits_token_products(x, a.size(1), a.size(3));
}

}  // namespace

Tensor merge_heads(const Tensor& x, const Tensor& a, const Tensor& weight, const Tensor& bias,
                   const Dropout& dropout) {
  require_heads("merge_heads", x, a, weight);
  require_same_kind("merge_heads", {&x, &bias});
  ENSURE(bias.shape() == Shape{x.size(2)}, "merge_heads: expected a bias [E] for x ", x, ", got ",
         bias);
  if (is_one_kernel(x, a)) {
    Tensor y = empty_like(x);  // [B, N, E]
    if constexpr (kHaveCuda) {
      merge_heads_on(Cuda{}, plan_of(x, a, dropout), x, a, weight, bias, y);
    }
    return y;
  }
  return add_linear(x, merged(a, operand_type(x, weight)), weight, bias, dropout);
}

// do = drop(dy)   dW = doᵀ merge(a)   db = sum of do's rows   merge(da) = do W
MergeGradients merge_heads_backward(const Tensor& a, const Tensor& weight, const Dropout& dropout,
                                    const Tensor& dy) {
  require_heads("merge_heads_backward", dy, a, weight);
  if (is_one_kernel(dy, a)) {
    Tensor da = empty_like(a);
    Tensor all = empty_like(dy, {weight.numel() + weight.size(0)});
    if constexpr (kHaveCuda) {
      merge_heads_backward_on(Cuda{}, plan_of(dy, a, dropout), dy, a, weight, da, all);
    }
    return {da, all.slice(0, weight.numel()).reshape(weight.shape()),
            all.slice(weight.numel(), all.numel())};
  }
  const DType type = operand_type(dy, weight);
  const auto [rows, sums] = operand_and_sums(dy, type, dropout);  // [B N, E], [E]
  const Shape side_by_side{a.size(0), a.size(2), a.size(1), a.size(3)};
  return {swap_middle(matmul(rows, as_operand(weight, type)).reshape(side_by_side)),
          matmul(rows, merged(a, type), Op::transpose, Op::none), sums};
}

}  // namespace skytape::tensor
