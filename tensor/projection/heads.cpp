#include "tensor/projection/heads.hpp"

#include <algorithm>
#include <limits>
#include <type_traits>
#include <vector>

#include "tensor/core/on_device.hpp"
#include "tensor/gemm/gemm.hpp"
#include "tensor/gemm/operand.hpp"
#include "tensor/gemm/precision.hpp"
#include "tensor/projection/heads_plan.hpp"
#include "tensor/projection/token_products.hpp"

namespace skytape::tensor {
namespace {

void require_number(const char* op, std::size_t count) {
  ENSURE(count > 0 && count <= kMostProjections, op, ": expected 1 to ", kMostProjections,
         " projections, got ", count);
}

/// The first of some parts [B, H, N, D] that is defined.
const Tensor& known_part(const char* op, std::span<const Tensor> parts) {
  const auto known = std::ranges::find_if(parts, &Tensor::defined);
  ENSURE(known != parts.end() && known->rank() == 4, op, ": expected a part [B, H, N, D]");
  return *known;
}

/// Kernels divide rows and columns in 32 bits.
void require_32_bits(const char* op, const HeadsPlan& plan) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  ENSURE(plan.rows() <= kMost && plan.columns() <= kMost, op, ": ", plan.rows(), " rows of ",
         plan.columns(), " columns are more than 32 bits number");
}

/// x and w are of one kind, or x is an operand of bf16 and w is f32 beside it.
void require_kind(const char* op, const Tensor& x, const Tensor& w) {
  if (x.dtype() != DType::bf16) return require_same_kind(op, {&x, &w});
  ENSURE(w.defined() && w.dtype() == DType::f32 && w.device() == x.device(), op,
         ": expected f32 beside an operand ", x, ", got ", w);
}

/// Weights [H D, E] and biases [H D] of one kind with x.
HeadsPlan plan_of(const char* op, const Tensor& x, std::span<const Tensor> weights,
                  std::span<const Tensor> biases, std::int64_t heads) {
  require_number(op, weights.size());
  ENSURE(biases.size() == weights.size(), op, ": ", weights.size(), " weights, but ", biases.size(),
         " biases");
  ENSURE(x.defined() && x.rank() == 3, op, ": expected x [B, N, E], got ", x);
  HeadsPlan plan;
  plan.batch = x.size(0);
  plan.n = x.size(1);
  plan.width = x.size(2);
  plan.parts = std::ssize(weights);
  plan.heads = heads;
  for (std::size_t p = 0; p < weights.size(); ++p) {
    const Tensor& w = weights[p];
    require_kind(op, x, w);
    ENSURE(w.rank() == 2 && w.size(1) == plan.width && w.shape() == weights[0].shape() &&
               heads > 0 && w.size(0) % heads == 0,
           op, ": expected weights of one shape [H D, E] for H = ", heads, " and x ", x, ", got ",
           w);
    if (!biases[p].defined()) continue;
    require_kind(op, x, biases[p]);
    ENSURE(biases[p].shape() == Shape({w.size(0)}), op, ": expected bias [", w.size(0), "], got ",
           biases[p]);
  }
  plan.d = weights[0].size(0) / heads;
  require_32_bits(op, plan);
  return plan;
}

}  // namespace

Tensor project_heads(const Tensor& x, std::span<const Tensor> weights,
                     std::span<const Tensor> biases, std::int64_t heads) {
  const HeadsPlan plan = plan_of("project_heads", x, weights, biases, heads);
  Tensor y = empty_like(weights[0], {plan.parts, plan.batch, heads, plan.n, plan.d});
  if (y.numel() == 0) return y;
  if (x.dtype() == DType::bf16) {
    const Tensor all = as_operand(stack_weights(weights), x.dtype());       // [P H D, E]
    const Tensor rows = linear(x.reshape({plan.rows(), plan.width}), all);  // [B N, P H D]
    on_cuda([&](auto tag) { split_heads_on(tag, plan, rows, biases, y); });
    return y;
  }
  on_device(x.device(), [&](auto tag) {
    if constexpr (std::is_same_v<decltype(tag), Cuda>) {
      if (fits_token_products(x, heads, plan.d)) {
        return project_tokens_on(tag, TokenPlan(plan), x, weights, biases, y);
      }
      if (fits_wide_products(x, heads, plan.d)) {
        return project_wide_on(tag, plan, x, weights, biases, y);
      }
    }
    project_heads_on(tag, plan, x, weights, biases, y);
  });
  return y;
}

namespace {

bool is_f32_for_bf16(const Tensor& x) {
  return x.device() == Device::cuda && x.dtype() == DType::f32 &&
         precision(Device::cuda) == Precision::bf16;
}

}  // namespace

bool fits_token_products(const Tensor& x, std::int64_t heads, std::int64_t d) {
  if (!is_f32_for_bf16(x)) return false;
  constexpr std::int64_t kMost = 64;
  const bool by_four = x.cols() % 4 == 0 && d % 4 == 0;
  const bool narrow = x.cols() <= kMost && 0 < heads * d && heads * d <= kMost;
  // Entries of an example by head are numbered in 32 bits.
  const std::int64_t rows = std::numeric_limits<std::int32_t>::max() / kMost;
  return by_four && narrow && 0 < x.numel() && x.rows() <= rows;
}

bool fits_wide_products(const Tensor& x, std::int64_t heads, std::int64_t d) {
  return is_f32_for_bf16(x) && x.numel() > 0 && x.cols() % 64 == 0 && heads * d % 64 == 0 &&
         d % 16 == 0;
}

namespace {

// With all projections side by side, W [P H D, E] and y [B N, P H D]: dx = dy W, dW = dyᵀ x, and db
// is the sum of dy's rows.
ProjectionGradients backward_by_definition(const HeadsPlan& plan, const Tensor& x,
                                           std::span<const Tensor> weights,
                                           std::span<const Tensor> dy) {
  const DType type = x.dtype();
  const auto [rows, sums] = gather_heads(dy, type);  // [B N, P H D], [P H D]
  const Tensor tokens = x.reshape({plan.rows(), plan.width});
  return {
      matmul(rows, as_operand(stack_weights(weights), type)).reshape(x.shape()),
      matmul(rows, tokens, Op::transpose, Op::none).reshape({plan.parts, plan.out(), plan.width}),
      sums.reshape({plan.parts, plan.out()})};
}

ProjectionGradients fused_backward(const HeadsPlan& plan, const Tensor& x,
                                   std::span<const Tensor> weights, std::span<const Tensor> dy) {
  Tensor dx = empty_like(x);                                 // [B, N, E]
  const std::int64_t entries = plan.columns() * plan.width;  // of all weights
  Tensor all = empty_like(x, {entries + plan.columns()});
  if constexpr (kHaveCuda) {
    project_heads_backward_on(Cuda{}, TokenPlan(plan), x, weights, dy, dx, all);
  }
  return {dx, all.slice(0, entries).reshape({plan.parts, plan.out(), plan.width}),
          all.slice(entries, all.numel()).reshape({plan.parts, plan.out()})};
}

}  // namespace

ProjectionGradients project_heads_backward(const Tensor& x, std::span<const Tensor> weights,
                                           std::span<const Tensor> dy) {
  constexpr const char* kOp = "project_heads_backward";
  require_number(kOp, dy.size());
  ENSURE(dy.size() == weights.size(), kOp, ": ", weights.size(), " weights, but ", dy.size(),
         " gradients");
  const std::int64_t heads = known_part(kOp, dy).size(1);
  const HeadsPlan plan = plan_of(kOp, x, weights, std::vector<Tensor>(weights.size()), heads);
  for (const Tensor& part : dy) {
    if (!part.defined()) continue;
    require_kind(kOp, x, part);
    ENSURE(part.shape() == Shape({plan.batch, plan.heads, plan.n, plan.d}), kOp,
           ": expected gradients [B, H, N, D] for x ", x, " and weights ", weights[0], ", got ",
           part);
  }
  if constexpr (kHaveCuda) {
    if (fits_token_products(x, plan.heads, plan.d) && project_heads_backward_has_room_on(Cuda{})) {
      return fused_backward(plan, x, weights, dy);
    }
  }
  return backward_by_definition(plan, x, weights, dy);
}

namespace {

/// Sizes of P parts [B, H, N, D] of one kind, as far as they tell: of any but undefined ones.
HeadsPlan plan_of_parts(const char* op, std::span<const Tensor> parts) {
  require_number(op, parts.size());
  const Tensor& known = known_part(op, parts);
  for (const Tensor& part : parts) {
    if (!part.defined()) continue;
    require_same_kind(op, {&known, &part});
    ENSURE(part.shape() == known.shape(), op, ": shapes differ: ", known, ", ", part);
  }
  HeadsPlan plan;
  plan.batch = known.size(0);
  plan.heads = known.size(1);
  plan.n = known.size(2);
  plan.d = known.size(3);
  plan.parts = std::ssize(parts);
  require_32_bits(op, plan);
  return plan;
}

void require_biases(const char* op, const HeadsPlan& plan, const Tensor& sums,
                    std::span<const Tensor> biases) {
  ENSURE(sums.shape() == Shape({plan.batch, plan.n, 1}) && std::ssize(biases) == plan.parts, op,
         ": expected sums [", plan.batch, ", ", plan.n, ", 1] and ", plan.parts, " biases, got ",
         sums, " and ", biases.size());
  for (const Tensor& bias : biases) {
    ENSURE(bias.defined() && bias.shape() == Shape({plan.out()}), op, ": expected biases [",
           plan.out(), "], got ", bias);
    require_same_kind(op, {&sums, &bias});
  }
}

}  // namespace

void add_biases(Tensor& y, const Tensor& sums, std::span<const Tensor> biases) {
  ENSURE(y.rank() == 5 && y.size(0) > 0, "add_biases: expected y [P, B, H, N, D], got ", y);
  std::vector<Tensor> parts;
  for (std::int64_t p = 0; p < y.size(0); ++p) parts.push_back(y[p]);
  const HeadsPlan plan = plan_of_parts("add_biases", parts);
  require_same_kind("add_biases", {&y, &sums});
  require_biases("add_biases", plan, sums, biases);
  if (y.numel() == 0) return;
  on_device(y.device(), [&](auto tag) { add_biases_on(tag, plan, sums, biases, y); });
}

AddedBiasGradients add_biases_backward(const Tensor& sums, std::span<const Tensor> biases,
                                       std::span<const Tensor> dy) {
  const HeadsPlan plan = plan_of_parts("add_biases_backward", dy);
  require_biases("add_biases_backward", plan, sums, biases);
  for (const Tensor& part : dy) {
    if (part.defined()) require_same_kind("add_biases_backward", {&sums, &part});
  }
  AddedBiasGradients d{empty_like(sums), empty_like(sums, {plan.parts, plan.out()})};
  on_device(sums.device(),
            [&](auto tag) { add_biases_backward_on(tag, plan, sums, biases, dy, d); });
  return d;
}

GatheredHeads gather_heads(std::span<const Tensor> parts, DType type_of_rows) {
  const HeadsPlan plan = plan_of_parts("gather_heads", parts);
  const Tensor& known = known_part("gather_heads", parts);
  GatheredHeads g{Tensor::empty({plan.rows(), plan.columns()}, type_of_rows, known.device()),
                  empty_like(known, {plan.columns()})};
  on_device(known.device(), [&](auto tag) { gather_heads_on(tag, plan, parts, g); });
  return g;
}

Tensor stack_weights(std::span<const Tensor> weights) {
  constexpr const char* kOp = "stack_weights";
  require_number(kOp, weights.size());
  for (const Tensor& w : weights) {
    require_same_kind(kOp, {&weights[0], &w});
    ENSURE(w.rank() == 2 && w.shape() == weights[0].shape(), kOp,
           ": expected weights of one shape [H D, E], got ", weights[0], " and ", w);
  }
  Tensor stacked = empty_like(
      weights[0], {std::ssize(weights) * weights[0].size(0), weights[0].size(1)});  // [P H D, E]
  on_device(stacked.device(), [&](auto tag) { stack_weights_on(tag, weights, stacked); });
  return stacked;
}

}  // namespace skytape::tensor
