#include "tensor/projection/heads.hpp"

#include <limits>

#include "tensor/projection/heads_plan.hpp"

namespace skytape::tensor {

void project_heads_on(Cpu, const HeadsPlan& plan, const Tensor& x, std::span<const Tensor> weights,
                      std::span<const Tensor> biases, Tensor& y);
void project_heads_on(Cuda, const HeadsPlan& plan, const Tensor& x, std::span<const Tensor> weights,
                      std::span<const Tensor> biases, Tensor& y);
void gather_heads_on(Cpu, const HeadsPlan& plan, std::span<const Tensor> parts, GatheredHeads& g);
void gather_heads_on(Cuda, const HeadsPlan& plan, std::span<const Tensor> parts, GatheredHeads& g);
void stack_weights_on(Cpu, std::span<const Tensor> weights, Tensor& stacked);
void stack_weights_on(Cuda, std::span<const Tensor> weights, Tensor& stacked);

namespace {

void require_number(const char* op, std::size_t count) {
  ENSURE(count > 0 && count <= kMostProjections, op, ": expected 1 to ", kMostProjections,
         " projections, got ", count);
}

/// Kernels divide rows and columns in 32 bits.
void require_32_bits(const char* op, const HeadsPlan& plan) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  ENSURE(plan.rows() <= kMost && plan.columns() <= kMost, op, ": ", plan.rows(), " rows of ",
         plan.columns(), " columns are more than 32 bits number");
}

/// Weights [H D, E] and biases [H D] of one kind with x.
HeadsPlan plan_of(const Tensor& x, std::span<const Tensor> weights, std::span<const Tensor> biases,
                  std::int64_t heads) {
  constexpr const char* kOp = "project_heads";
  require_number(kOp, weights.size());
  ENSURE(biases.size() == weights.size(), kOp, ": ", weights.size(), " weights, but ",
         biases.size(), " biases");
  ENSURE(x.defined() && x.rank() == 3, kOp, ": expected x [B, N, E], got ", x);
  HeadsPlan plan;
  plan.batch = x.size(0);
  plan.n = x.size(1);
  plan.width = x.size(2);
  plan.parts = std::ssize(weights);
  plan.heads = heads;
  for (std::size_t p = 0; p < weights.size(); ++p) {
    const Tensor& w = weights[p];
    require_same_kind(kOp, {&x, &w});
    ENSURE(w.rank() == 2 && w.size(1) == plan.width && w.shape() == weights[0].shape() &&
               heads > 0 && w.size(0) % heads == 0,
           kOp, ": expected weights of one shape [H D, E] for H = ", heads, " and x ", x, ", got ",
           w);
    if (!biases[p].defined()) continue;
    require_same_kind(kOp, {&x, &biases[p]});
    ENSURE(biases[p].shape() == Shape({w.size(0)}), kOp, ": expected bias [", w.size(0), "], got ",
           biases[p]);
  }
  plan.d = weights[0].size(0) / heads;
  require_32_bits(kOp, plan);
  return plan;
}

}  // namespace

Tensor project_heads(const Tensor& x, std::span<const Tensor> weights,
                     std::span<const Tensor> biases, std::int64_t heads) {
  const HeadsPlan plan = plan_of(x, weights, biases, heads);
  Tensor y = Tensor::empty({plan.parts, plan.batch, heads, plan.n, plan.d}, x.dtype(), x.device());
  if (y.numel() == 0) return y;
  on_device(x.device(), [&](auto tag) {
    project_heads_on(tag, plan, x, weights, biases, y);
    count_product();
  });
  return y;
}

GatheredHeads gather_heads(std::span<const Tensor> parts) {
  constexpr const char* kOp = "gather_heads";
  require_number(kOp, parts.size());
  const Tensor* known = nullptr;
  for (const Tensor& part : parts) {
    if (part.defined()) known = &part;
  }
  ENSURE(known != nullptr && known->rank() == 4, kOp, ": expected a part [B, H, N, D]");
  for (const Tensor& part : parts) {
    if (!part.defined()) continue;
    require_same_kind(kOp, {known, &part});
    ENSURE(part.shape() == known->shape(), kOp, ": shapes differ: ", *known, ", ", part);
  }
  HeadsPlan plan;
  plan.batch = known->size(0);
  plan.heads = known->size(1);
  plan.n = known->size(2);
  plan.d = known->size(3);
  plan.parts = std::ssize(parts);
  require_32_bits(kOp, plan);
  GatheredHeads g{Tensor::empty({plan.rows(), plan.columns()}, known->dtype(), known->device()),
                  Tensor::empty({plan.columns()}, known->dtype(), known->device())};
  on_device(known->device(), [&](auto tag) { gather_heads_on(tag, plan, parts, g); });
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
  Tensor stacked = Tensor::empty({std::ssize(weights) * weights[0].size(0), weights[0].size(1)},
                                 weights[0].dtype(), weights[0].device());  // [P H D, E]
  on_device(stacked.device(), [&](auto tag) { stack_weights_on(tag, weights, stacked); });
  return stacked;
}

}  // namespace skytape::tensor
