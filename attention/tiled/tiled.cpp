// Tiled attention: what both devices share, on whole tensors. The halves that walk the tiles are
// tiled_cpu.cpp, and tiled.cu with tiled_tensor_core.cu.
//
// Backward. With c_ij = keep_ij (0 or 1 / (1 - rate)), O_i = sum_j w_ij c_ij v_j and G = dout:
//
//   dv_j = sum_i w_ij c_ij G_i          dL/dw_ij = c_ij G_i.v_j                                 (2)
//
// softmax: w depends on a whole row of scores, and lse is an output. Since sum_j w_ij dL/dw_ij is
// G_i.O_i, with dropout too,
//
//   e_ij = dL/dscore_ij = w_ij (c_ij G_i.v_j - delta_i)      delta_i = G_i.O_i - dlse_i         (3)
//
// gaussian: e_ij = w_ij c_ij G_i.v_j, and the row and column terms depend on q and k as well:
//
//   dq_i = scale (sum_j e_ij k_j - q_i sum_j e_ij)           sum_j e_ij = G_i.O_i               (4)
//   dk_j = scale (sum_i e_ij q_i - k_j sum_i e_ij)           sum_i e_ij = v_j.dv_j              (5)
//
// so neither method needs a sum over weights that is not a matrix product.
#include "attention/tiled/tiled.hpp"

#include <algorithm>

#include "attention/tiled/tiled_plan.hpp"
#include "autograd/ops.hpp"
#include "tensor/core/on_device.hpp"
#include "tensor/gemm/operand.hpp"
#include "tensor/gemm/precision.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/kernels/reduce.hpp"
#include "tensor/movement/layout.hpp"
#include "tensor/random/dropout.hpp"

namespace skytape::attention {
namespace {

void check(const char* op, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
           const TiledOptions& options) {
  require_same_kind(op, {&q, &k, &mask});
  ENSURE(q.rank() == 4 && k.rank() == 4 && k.shape() == q.shape().with(2, k.size(2)), op,
         ": expected q [B, H, N, D] and k [B, H, M, D], got q ", q, ", k ", k);
  ENSURE(mask.shape() == Shape({k.size(0), k.size(2)}), op, ": expected mask [B, M] for k ", k,
         ", got ", mask);
  if (v.defined()) {
    require_same_kind(op, {&q, &v});
    ENSURE(v.shape() == k.shape(), op, ": expected v of the shape of k ", k, ", got ", v);
  } else {
    ENSURE(options.score == Score::softmax, op, ": only softmax may do without v");
  }
  ENSURE(!options.mask_queries || q.size(2) == k.size(2), op,
         ": a mask of queries needs as many of them as keys, got q ", q, ", k ", k);
  const Tensor& keep = options.dropout.keep;
  if (keep.defined()) {
    require_same_kind(op, {&q, &keep});
    ENSURE(keep.shape() == q.shape().with(3, k.size(2)), op, ": expected keep [B, H, N, M] for q ",
           q, " and k ", k, ", got ", keep);
  }
}

TiledPlan plan_for(const char* op, const Tensor& q, const Tensor& k, const TiledOptions& options) {
  return tiled_plan(op, q.shape(), k.size(2), options, q.device());
}

/// Rows as their scores are computed from them: outside tensor cores a GPU always multiplies in
/// f32.
Tensor as_scored(const Tensor& x) {
  return x.device() == Device::cpu ? tensor::as_multiplied(x) : x;
}

/// -scale |x|^2 / 2 of each row. x: [B, H, N, D] -> [B, H, N].
Tensor square_term(const Tensor& x, double scale) {
  return tensor::affine(tensor::row_dot(x, x), -0.5 * scale);
}

TiledInputs inputs_for(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                       const TiledOptions& options) {
  TiledInputs in{q, k, v, {}, {}, options.dropout.keep};
  if (tiled_cuda::on_tensor_cores(q)) {
    in.mask = mask;
    return in;
  }
  if (options.mask_queries) in.q = tensor::mask_rows(q, mask);
  const Tensor log_mask = key_bias(mask).reshape({mask.size(0), 1, mask.size(1)});  // [B, 1, M]
  if (options.score == Score::gaussian) {
    in.q = as_scored(in.q);
    in.k = as_scored(k);
    in.row = square_term(in.q, options.scale);
    in.column = tensor::add(square_term(in.k, options.scale), log_mask);
  } else {
    in.column = tensor::expand(log_mask, k.shape().first(3));
  }
  return in;
}

/// x rows times a number each. x: [B, H, N, D], factor: [B, H, N].
Tensor scale_rows(const Tensor& x, const Tensor& factor) {
  return tensor::multiply(x, factor.reshape(factor.shape().append(1)));
}

/// Rows of x times rows of y, [B, H, N]: G_i.O_i, D of FlashAttention-2, or v_j.dv_j, with x
/// rounded as in the products that compute dL/dw. Beside the tensor cores a GPU computes in true
/// f32.
Tensor dots_as_multiplied(const Tensor& x, const Tensor& y) {
  const bool exact = x.device() == Device::cuda;
  return exact ? tensor::row_dot(x, y) : tensor::multiplied_row_dot(x, y);
}

/// All of (2) to (5), by kernels alone.
TiledBackward backward_on_tensor_cores(const TiledPlan& plan, TiledInputs in,
                                       const TiledForward& saved, const Tensor& dout,
                                       const Tensor& dlse) {
  in.row = saved.lse;
  in.out = dout.defined() ? saved.out : Tensor();
  in.dlse = dlse;
  TiledBackward result{empty_like(in.q), empty_like(in.k),
                       in.v.defined() ? empty_like(in.v) : Tensor()};
  on_cuda([&](auto tag) { tiled_backward_on(tag, plan, in, dout, {}, result); });
  return result;
}

}  // namespace

TiledPlan tiled_plan(const char* op, const Shape& q, std::int64_t keys, const TiledOptions& options,
                     Device device) {
  TiledPlan plan;
  plan.score = options.score;
  plan.scale = options.scale;
  plan.mask_queries = options.mask_queries;
  plan.batch = q[0];
  plan.heads = q[1];
  plan.queries = q[2];
  plan.keys = keys;
  plan.width = q[3];

  const WeightDropout& dropout = options.dropout;
  const std::uint32_t threshold = tensor::dropout_threshold(op, dropout.rate);
  if (dropout.keep.defined()) {
    plan.keep_scale = 1 / (1 - dropout.rate);
  } else if (threshold > 0) {
    const std::int64_t longest = std::max(plan.queries, plan.keys);
    const std::int64_t nominal = dropout.nominal_length == 0 ? longest : dropout.nominal_length;
    ENSURE(nominal >= longest, op, ": nominal_length ", nominal, " is shorter than q ", q, " or ",
           keys, " keys");
    plan.threshold = threshold;
    plan.keep_scale = tensor::dropout_scale(threshold);
    plan.key = dropout.random.key;
    plan.step = tensor::step_data(op, dropout.random, device);
    plan.first_head = dropout.first_example * plan.heads;
    plan.row_count = nominal;
    plan.row_stride = whole_chunks(nominal);
  }
  return plan;
}

Tensor kept_decisions(const TiledPlan& plan, DType dtype, Device device) {
  const std::int64_t bits_of_rows =
      8 * size_of(dtype) * plan.width * (2 * plan.queries + 2 * plan.keys);
  if (device != Device::cuda || plan.threshold == 0 || plan.queries * plan.keys > bits_of_rows) {
    return {};
  }
  return Tensor::empty({plan.batch, plan.heads, whole_chunks(plan.keys) / tensor::kDropoutChunk,
                        whole_chunks(plan.queries), tensor::kDropoutChunk / 32},
                       DType::i32, Device::cuda);
}

bool tiled_cuda::on_tensor_cores(const Tensor& q) {
  return q.device() == Device::cuda && q.dtype() == DType::f32 &&
         precision(Device::cuda) != Precision::fp32 && q.size(3) <= kTensorCoreWidth;
}

WeightDropout weight_dropout(double rate, std::int64_t nominal_length, const Draws& draws,
                             const Call& call) {
  if (const Tensor* keep = draws.find("keep")) return {rate, {}, 0, 0, *keep};
  if (!call.training) return {};
  return {rate, fork(call.random, Purpose::dropout), call.first_example, nominal_length, {}};
}

TiledForward tiled_forward(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                           const TiledOptions& options) {
  check("tiled_forward", q, k, v, mask, options);
  const TiledPlan plan = plan_for("tiled_forward", q, k, options);
  const TiledInputs in = inputs_for(q, k, v, mask, options);
  TiledForward result;
  if (v.defined()) {
    result.out = empty_like(q);
    result.kept = kept_decisions(plan, q.dtype(), q.device());
  }
  if (plan.score == Score::softmax) {
    result.lse = empty_like(q, q.shape().first(3));
  }
  on_device(q.device(), [&](auto tag) { tiled_forward_on(tag, plan, in, result); });
  return result;
}

TiledBackward tiled_backward(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                             const TiledOptions& options, const TiledForward& saved,
                             const Tensor& dout, const Tensor& dlse) {
  check("tiled_backward", q, k, v, mask, options);
  if (!dout.defined() && dlse.defined() && v.defined()) {  // only the row sums were used
    TiledBackward result = tiled_backward(q, k, {}, mask, options, saved, {}, dlse);
    result.dv = zeros_like(v);
    return result;
  }
  ENSURE(dout.defined() == v.defined() && (dout.defined() || dlse.defined()),
         "tiled_backward: got dout ", dout, ", dlse ", dlse, " for v ", v);
  ENSURE(!dlse.defined() || (saved.lse.defined() && dlse.shape() == saved.lse.shape()),
         "tiled_backward: expected dlse of the shape of lse ", saved.lse, ", got ", dlse);
  const TiledPlan plan = plan_for("tiled_backward", q, k, options);
  TiledInputs in = inputs_for(q, k, v, mask, options);
  in.kept = saved.kept;
  if (dout.defined()) {
    require_same_kind("tiled_backward", {&q, &dout});
    ENSURE(dout.shape() == q.shape(), "tiled_backward: expected dout like q ", q, ", got ", dout);
  }
  if (tiled_cuda::on_tensor_cores(q)) return backward_on_tensor_cores(plan, in, saved, dout, dlse);

  Tensor out_dot;  // [B, H, N]
  if (dout.defined()) {
    out_dot = dots_as_multiplied(dout, saved.out);
  } else {
    out_dot = zeros_like(saved.lse);
  }
  Tensor delta;  // [B, H, N]: what dscores subtract from dweights
  if (plan.score == Score::softmax) {
    in.row = saved.lse;
    delta = dlse.defined() ? tensor::subtract(out_dot, dlse) : out_dot;  // (3)
  } else {
    delta = zeros_like(out_dot);
  }

  TiledBackward result{empty_like(q), empty_like(k), v.defined() ? empty_like(v) : Tensor()};
  on_device(q.device(), [&](auto tag) { tiled_backward_on(tag, plan, in, dout, delta, result); });
  if (plan.score == Score::gaussian) {
    tensor::accumulate(result.dq, scale_rows(in.q, out_dot), -plan.scale);  // (4)
    tensor::accumulate(result.dk, scale_rows(in.k, dots_as_multiplied(v, result.dv)),
                       -plan.scale);  // (5)
  }
  if (plan.mask_queries) result.dq = tensor::mask_rows(result.dq, mask);
  return result;
}

Result tiled_attention(const Inputs& in, const TiledOptions& options) {
  const TiledForward saved = tiled_forward(in.q, in.k, in.v, in.mask, options);
  return {saved.out, [=](const Tensor& dout) -> Gradients {
            const TiledBackward d = tiled_backward(in.q, in.k, in.v, in.mask, options, saved, dout);
            return {d.dq, d.dk, d.dv, {}};
          }};
}

Tensor weight_dropout_factors(const Shape& shape, const WeightDropout& dropout, DType dtype,
                              Device device) {
  ENSURE(shape.rank() == 4, "weight_dropout_factors: expected a shape [B, H, N, M], got ", shape);
  if (dropout.keep.defined()) return tensor::affine(dropout.keep, 1 / (1 - dropout.rate));
  const std::int64_t longest = std::max(shape[2], shape[3]);
  const std::int64_t nominal = dropout.nominal_length == 0 ? longest : dropout.nominal_length;
  const std::int64_t stride = whole_chunks(nominal);
  const Dropout flat{dropout.rate, dropout.random, dropout.first_example, shape[1] * nominal};
  const Tensor all =
      tensor::dropout_factors({shape[0], shape[1] * nominal, stride}, flat, dtype, device)
          .reshape({shape[0], shape[1], nominal, stride});
  return tensor::narrow(tensor::narrow(all, 2, 0, shape[2]), 3, 0, shape[3]);
}

Var drop_weights(Var weights, const WeightDropout& dropout) {
  const Tensor& w = weights.value();
  return weights *
         weights.tape().constant(weight_dropout_factors(w.shape(), dropout, w.dtype(), w.device()));
}

}  // namespace skytape::attention
