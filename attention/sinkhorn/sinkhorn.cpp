// Sinkhorn normalisation and its unrolled backward. With W the matrix of the step's potentials at
// the time, that is exp(S - a - c) with the latest a and c:
//   R   = exp(S - a - c)           dS += R dR   da_i -= sum_j (R dR)_ij   dc_j -= sum_i (R dR)_ij
//   c_j = lse_i (S_ij - a_i)       dS_ij += W_ij dc_j   da_i -= sum_j W_ij dc_j
//   a_i = lse_j (S_ij - c'_j)      dS_ij += W_ij da_i   dc'_j = -sum_i W_ij da_i    (c' before it)
#include "attention/sinkhorn/sinkhorn.hpp"

#include "tensor/core/on_device.hpp"

namespace skytape::attention {
namespace {

void require_square(const char* op, const Tensor& x) {
  ENSURE(x.rank() == 4 && x.size(2) == x.size(3), op, ": expected [B, H, Q, Q], got ", x);
}

}  // namespace

Tensor sinkhorn_scores(const Tensor& s, const Tensor& noise, const Tensor& present,
                       double temperature) {
  require_square("sinkhorn_scores", s);
  ENSURE(!noise.defined() || noise.shape() == s.shape(), "sinkhorn_scores: expected noise like s ",
         s, ", got ", noise);
  ENSURE(present.shape() == Shape({s.size(0), s.size(2)}),
         "sinkhorn_scores: expected present [B, Q] for s ", s, ", got ", present);
  require_same_kind("sinkhorn_scores", {&s, &present});
  Tensor scores = empty_like(s);  // [B, H, Q, Q]
  on_device(s.device(),
            [&](auto tag) { sinkhorn_scores_on(tag, s, noise, present, temperature, scores); });
  return scores;
}

SinkhornForward sinkhorn(const Tensor& scores, std::int64_t steps) {
  require_square("sinkhorn", scores);
  ENSURE(steps >= 1, "sinkhorn: expected at least one step, got ", steps);
  const std::int64_t b = scores.size(0), h = scores.size(1), q = scores.size(2);
  const auto potentials = [&] { return empty_like(scores, {steps, b, h, q}); };
  SinkhornForward result{empty_like(scores), potentials(), potentials()};
  on_device(scores.device(), [&](auto tag) { sinkhorn_on(tag, scores, result); });
  return result;
}

Tensor sinkhorn_backward(const Tensor& scores, const SinkhornForward& saved,
                         const Tensor& dmatrix) {
  require_square("sinkhorn_backward", scores);
  require_same_kind("sinkhorn_backward", {&scores, &dmatrix});
  ENSURE(dmatrix.shape() == scores.shape(), "sinkhorn_backward: expected dmatrix like scores ",
         scores, ", got ", dmatrix);
  Tensor ds = empty_like(scores);  // [B, H, Q, Q]
  on_device(scores.device(),
            [&](auto tag) { sinkhorn_backward_on(tag, scores, saved, dmatrix, ds); });
  return ds;
}

}  // namespace skytape::attention
