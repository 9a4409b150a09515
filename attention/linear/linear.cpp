// Linear attention: checks, and the derivation of its gradients.
//
// Backward. With G = dout, and what is raised to `least` held constant:
//   (2)  dS_i[:D] = G_i / z_i     dS_iD = -G_i.O_i / z_i     dA = dS T     dT = dS^T A
//   (1)  dC = [V, 1] dT           dV = C dT[:D]^T
//   (3)  dQ = dA phi'(Q)          dK = m dC phi'(K)
#include "attention/linear/linear.hpp"

#include "attention/linear/linear_plan.hpp"
#include "tensor/core/on_device.hpp"

namespace skytape::attention {
namespace {

LinearInputs inputs_of(const char* op, const Tensor& q, const Tensor& k, const Tensor& v,
                       const Tensor& mask, const LinearOptions& options) {
  require_same_kind(op, {&q, &k, &v, &mask});
  ENSURE(q.rank() == 4 && k.shape() == q.shape() && v.shape() == q.shape(), op,
         ": expected q, k and v [B, H, N, D], got ", q, ", ", k, ", ", v);
  ENSURE(mask.shape() == Shape({q.size(0), q.size(2)}), op, ": expected mask [B, N] for q ", q,
         ", got ", mask);
  const std::int64_t features = options.turn == 0 ? q.size(3) : 2 * q.size(3);
  return {joined(q), joined(k), joined(v), mask, options, q.size(1), features};
}

}  // namespace

LinearForward linear_forward(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                             const LinearOptions& options) {
  const LinearInputs in = inputs_of("linear_forward", q, k, v, mask, options);
  const std::int64_t g = in.q.size(0), n = in.q.size(1), d = in.q.size(2);
  const auto empty = [&](const Shape& shape) { return empty_like(q, shape); };
  LinearForward flat{empty(in.q.shape()), empty({g, d + 1, in.features}), empty({g, n})};
  on_device(q.device(), [&](auto tag) { linear_forward_on(tag, in, flat); });
  return {flat.out.reshape(q.shape()),
          flat.sums.reshape({q.size(0), q.size(1), d + 1, in.features}),
          flat.z.reshape(q.shape().first(3))};
}

LinearBackward linear_backward(const Tensor& q, const Tensor& k, const Tensor& v,
                               const Tensor& mask, const LinearOptions& options,
                               const LinearForward& saved, const Tensor& dout) {
  const LinearInputs in = inputs_of("linear_backward", q, k, v, mask, options);
  require_same_kind("linear_backward", {&q, &dout});
  ENSURE(dout.shape() == q.shape(), "linear_backward: expected dout of q's shape ", q, ", got ",
         dout);
  LinearBackward flat{empty_like(in.q), empty_like(in.q), empty_like(in.q)};
  const LinearForward known{joined(saved.out), joined(saved.sums),
                            saved.z.reshape({in.q.size(0), in.q.size(1)})};
  on_device(q.device(), [&](auto tag) { linear_backward_on(tag, in, known, joined(dout), flat); });
  return {flat.dq.reshape(q.shape()), flat.dk.reshape(q.shape()), flat.dv.reshape(q.shape())};
}

Result linear_attention(const Inputs& in, const LinearOptions& options) {
  const LinearForward saved = linear_forward(in.q, in.k, in.v, in.mask, options);
  return {saved.out, [=](const Tensor& dout) -> Gradients {
            const LinearBackward d =
                linear_backward(in.q, in.k, in.v, in.mask, options, saved, dout);
            return {d.dq, d.dk, d.dv, {}};
          }};
}

}  // namespace skytape::attention
