#include "tensor/norm/norm_pool.hpp"

#include <algorithm>
#include <limits>
#include <vector>

#include "tensor/core/on_device.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/kernels/reduce.hpp"
#include "tensor/norm/layer_norm.hpp"

namespace skytape::tensor {
namespace {

using Kind = TokenWeights::Kind;

void require_operands(const char* op, const Tensor& x, const Tensor& weight, const Tensor& mask,
                      const TokenWeights& rule) {
  require_same_kind(op, {&x, &weight, &mask});
  ENSURE(x.rank() == 3 && x.size(1) > 0 && x.size(2) > 0, op,
         ": expected x [B, N, E] with N, E > 0, got ", x);
  ENSURE(weight.shape() == Shape{x.size(2)} && mask.shape() == Shape({x.size(0), x.size(1)}), op,
         ": expected a weight [E] and a mask [B, N] for x ", x, ", got ", weight, ", ", mask);
  ENSURE(rule.kind != Kind::nominal || rule.divisor > 0, op, ": expected a divisor > 0, got ",
         rule.divisor);
}

// ---- by its definition, on any device -----------------------------------------------------------

/// w as [B, N, 1].
Tensor weights_of(const Tensor& mask, const TokenWeights& rule) {
  const std::int64_t batch = mask.size(0), n = mask.size(1);
  Tensor w = affine(mask, 1 / rule.divisor);
  if (rule.kind == Kind::mean) {
    w = divide(mask, token_counts(mask));
  } else if (rule.kind == Kind::first) {
    std::vector<double> first(static_cast<std::size_t>(n));
    first[0] = 1;
    w = multiply(mask, Tensor::from(first, {n}, mask.dtype(), mask.device()));
  }
  return w.reshape({batch, n, 1});
}

NormPool by_definition(const Tensor& x, const Tensor& weight, const Tensor& bias,
                       const Tensor& mask, const TokenWeights& rule) {
  const LayerNormForward norm = layer_norm(x, weight, bias);
  return {sum(multiply(norm.y, weights_of(mask, rule)), 1), norm.mean, norm.inv_std, {}};
}

NormPoolBackward backward_by_definition(const Tensor& x, const Tensor& weight, const Tensor& mask,
                                        const TokenWeights& rule, const NormPool& saved,
                                        const Tensor& dpooled) {
  const Tensor dy =
      multiply(weights_of(mask, rule), dpooled.reshape({x.size(0), 1, x.size(2)}));  // [B, N, E]
  const LayerNormBackward d = layer_norm_backward(x, weight, saved.mean, saved.inv_std, dy);
  return {d.dx, d.dweight, d.dbias};
}

bool is_fused(const Tensor& x) {
  return x.device() == Device::cuda && x.rank() == 3 && x.numel() > 0 && is_one_pass(x) &&
         x.rows() <= std::numeric_limits<std::int32_t>::max();
}

}  // namespace

NormPool norm_pool(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& mask,
                   const TokenWeights& rule) {
  require_operands("norm_pool", x, weight, mask, rule);
  require_same_kind("norm_pool", {&x, &bias});
  ENSURE(bias.shape() == weight.shape(), "norm_pool: expected a bias [E] for x ", x, ", got ",
         bias);
  if (!is_fused(x)) return by_definition(x, weight, bias, mask, rule);
  const std::int64_t batch = x.size(0), e = x.size(2);
  const auto fresh = [&](const Shape& shape) { return empty_like(x, shape); };
  NormPool out{fresh({batch, e}), fresh(mask.shape()), fresh(mask.shape()), fresh({batch, e + 2})};
  if constexpr (kHaveCuda) norm_pool_on(Cuda{}, x, weight, bias, mask, rule, out);
  return out;
}

NormPoolBackward norm_pool_backward(const Tensor& x, const Tensor& weight, const Tensor& mask,
                                    const TokenWeights& rule, const NormPool& saved,
                                    const Tensor& dpooled) {
  require_operands("norm_pool_backward", x, weight, mask, rule);
  require_same_kind("norm_pool_backward", {&x, &saved.mean, &saved.inv_std, &dpooled});
  ENSURE(dpooled.shape() == Shape({x.size(0), x.size(2)}),
         "norm_pool_backward: expected dpooled [B, E] for x ", x, ", got ", dpooled);
  if (!is_fused(x)) return backward_by_definition(x, weight, mask, rule, saved, dpooled);
  Tensor dx = empty_like(x);                       // [B, N, E]
  Tensor dparams = empty_like(x, {2, x.size(2)});  // dweight, dbias
  if constexpr (kHaveCuda) {
    norm_pool_backward_on(Cuda{}, x, weight, mask, rule, saved, dpooled, dx, dparams);
  }
  return {dx, dparams[0], dparams[1]};
}

}  // namespace skytape::tensor
