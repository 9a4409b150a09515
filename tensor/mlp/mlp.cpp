#include "tensor/mlp/mlp.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include "tensor/core/on_device.hpp"
#include "tensor/gemm/gemm.hpp"
#include "tensor/gemm/operand.hpp"
#include "tensor/gemm/precision.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/mlp/mlp_plan.hpp"

namespace skytape::tensor {
namespace {

bool has_norm(const MlpWeights& w) { return w.norm_weight.defined() || w.norm_bias.defined(); }

void require_operands(const char* op, const Tensor& x, const MlpWeights& w) {
  require_same_kind(op, {&x, &w.in_weight, &w.in_bias, &w.out_weight, &w.out_bias});
  ENSURE(x.rank() == 3 && x.size(2) > 0, op, ": expected x [B, N, E] with E > 0, got ", x);
  const Shape e{x.size(2)};
  ENSURE(w.out_bias.shape() == e, op, ": expected the last bias ", e, " for x ", x, ", got ",
         w.out_bias);
  if (has_norm(w)) {
    require_same_kind(op, {&x, &w.norm_weight, &w.norm_bias});
    ENSURE(w.norm_factor > 0, op, ": expected a norm_factor above 0, got ", w.norm_factor);
    ENSURE(w.norm_weight.shape() == e && w.norm_bias.shape() == e, op,
           ": expected the norm's weight and bias ", e, " for x ", x, ", got ", w.norm_weight, ", ",
           w.norm_bias);
  }
  const std::int64_t f = w.in_bias.rank() == 1 ? w.in_bias.size(0) : -1;
  ENSURE(w.in_weight.shape() == Shape({f, e[0]}) && w.out_weight.shape() == Shape({e[0], f}), op,
         ": expected weights [F, E], [E, F] and a bias [F] for x ", x, ", got ", w.in_weight, ", ",
         w.out_weight, ", ", w.in_bias);
}

// ---- by its definition, on any device -----------------------------------------------------------

/// factor x, or x itself where that is the same.
Tensor scaled(const Tensor& x, double factor) { return factor == 1 ? x : affine(x, factor); }

MlpForward by_definition(const Tensor& x, const MlpWeights& w, const Dropout& hidden,
                         const Dropout& output) {
  const DType type = operand_type(x, w.in_weight);
  MlpSaved saved;
  if (has_norm(w)) {
    saved.norm = layer_norm(scaled(x, w.norm_factor), w.norm_weight, w.norm_bias, type);
  } else {
    saved.norm.y = as_operand(x, type);
  }
  saved.z = matmul(saved.norm.y, as_operand(w.in_weight, type), Op::none, Op::transpose, type);
  saved.u = bias_gelu_dropout(saved.z, w.in_bias, hidden);
  return {add_linear(x, saved.u, w.out_weight, w.out_bias, output), saved};
}

// do = drop2(dy)      dW2 = doᵀ u    db2 = sum of do's rows
// dz = (do W2) drop1 gelu'(z)        dW1 = dzᵀ h    db1 = sum of dz's rows
// dx = dy + norm's backward of dz W1, or dy + dz W1
MlpGradients backward_by_definition(const Tensor& x, const MlpWeights& w, const Dropout& hidden,
                                    const Dropout& output, const MlpSaved& saved,
                                    const Tensor& dy) {
  const std::int64_t rows = x.rows(), e = x.cols(), f = w.in_bias.numel();
  const DType type = saved.u.dtype();
  const auto [dout, dout_bias] = operand_and_sums(dy, type, output);  // [B N, E], [E]
  const Tensor du =
      matmul(dout, as_operand(w.out_weight, type), Op::none, Op::none, type);  // [B N, F]
  const Tensor dz =
      bias_gelu_dropout_backward(saved.z, w.in_bias, hidden, du.reshape(saved.z.shape()))
          .reshape({rows, f});
  const Tensor dh = matmul(dz, as_operand(w.in_weight, type)).reshape(x.shape());  // [B, N, E]
  MlpGradients d;
  if (!has_norm(w)) {
    d.dx = add(dy, dh);
  } else {
    const bool is_scaled = w.norm_factor != 1;
    const LayerNormBackward norm =
        layer_norm_backward(scaled(x, w.norm_factor), w.norm_weight, saved.norm.mean,
                            saved.norm.inv_std, dh, {}, is_scaled ? Tensor() : dy);
    d.dx = is_scaled ? add(dy, affine(norm.dx, w.norm_factor)) : norm.dx;
    d.dnorm_weight = norm.dweight;
    d.dnorm_bias = norm.dbias;
  }
  d.din_weight = matmul(dz, saved.norm.y.reshape({rows, e}), Op::transpose, Op::none);
  d.din_bias = operand_sums(dz);
  d.dout_weight = matmul(dout, saved.u.reshape({rows, f}), Op::transpose, Op::none);
  d.dout_bias = dout_bias;
  return d;
}

// ---- as one kernel ------------------------------------------------------------------------------

MlpPlan plan_of(const Tensor& x, const MlpWeights& w, const Dropout& hidden,
                const Dropout& output) {
  MlpPlan plan;
  plan.rows = x.rows();
  plan.e = static_cast<int>(x.cols());
  plan.f = static_cast<int>(w.in_bias.numel());
  plan.share = 1.0f / static_cast<float>(plan.e);
  plan.epsilon = static_cast<float>(kLayerNormEpsilon / (w.norm_factor * w.norm_factor));
  plan.hidden = row_dropout("mlp", x, plan.f, hidden);
  plan.output = row_dropout("mlp", x, plan.e, output);
  return plan;
}

MlpGradients fused_backward(const Tensor& x, const MlpWeights& w, const Dropout& hidden,
                            const Dropout& output, const Tensor& metadata, const Tensor& dy) {
  const MlpPlan plan = plan_of(x, w, hidden, output);
  const MlpGradientPlaces at(plan.e, plan.f);
  Tensor dx = empty_like(x);  // [B, N, E]
  Tensor all = empty_like(x, {at.size});
  if constexpr (kHaveCuda) mlp_backward_on(Cuda{}, plan, x, w, metadata, dy, dx, all);
  const auto part = [&all](std::int64_t begin, const Tensor& like) {
    return all.slice(begin, begin + like.numel()).reshape(like.shape());
  };
  return {dx,
          part(at.norm_weight, w.norm_weight),
          part(at.norm_bias, w.norm_bias),
          part(at.in_weight, w.in_weight),
          part(at.in_bias, w.in_bias),
          part(at.out_weight, w.out_weight),
          part(at.out_bias, w.out_bias)};
}

bool is_one_kernel(const Tensor& x, const MlpWeights& w) {
  if (x.device() != Device::cuda || x.dtype() != DType::f32 || !has_norm(w)) return false;
  if (precision(Device::cuda) != Precision::bf16) return false;
  constexpr std::array<std::int64_t, 4> kWidths = {16, 32, 64, 128};
  const auto fits = [&](std::int64_t width, std::int64_t most) {
    return width <= most && std::find(kWidths.begin(), kWidths.end(), width) != kWidths.end();
  };
  const bool counted = 0 < x.rows() && x.rows() <= std::numeric_limits<std::int32_t>::max();
  if (!counted || !fits(x.cols(), 64) || !fits(w.in_bias.numel(), 128)) return false;
  if constexpr (kHaveCuda) return mlp_has_room_on(Cuda{});
  return false;
}

}  // namespace

MlpForward mlp(const Tensor& x, const MlpWeights& w, const Dropout& hidden, const Dropout& output) {
  require_operands("mlp", x, w);
  if (!is_one_kernel(x, w)) return by_definition(x, w, hidden, output);
  const MlpPlan plan = plan_of(x, w, hidden, output);
  MlpForward out;
  out.y = empty_like(x);
  out.saved.metadata = Tensor::empty({x.size(0), x.size(1), kMlpMetadata}, DType::i32, x.device());
  if constexpr (kHaveCuda) mlp_on(Cuda{}, plan, x, w, out.y, out.saved.metadata);
  return out;
}

MlpGradients mlp_backward(const Tensor& x, const MlpWeights& w, const Dropout& hidden,
                          const Dropout& output, const MlpSaved& saved, const Tensor& dy) {
  require_operands("mlp_backward", x, w);
  require_same_kind("mlp_backward", {&x, &dy});
  ENSURE(dy.shape() == x.shape(), "mlp_backward: expected dy of the shape of x ", x, ", got ", dy);
  if (saved.metadata.defined()) return fused_backward(x, w, hidden, output, saved.metadata, dy);
  return backward_by_definition(x, w, hidden, output, saved, dy);
}

}  // namespace skytape::tensor
