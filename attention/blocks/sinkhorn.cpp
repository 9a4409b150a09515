// Sinkhorn normalisation and its unrolled backward. With W the matrix of the step's potentials at
// the time, that is exp(S - a - c) with the latest a and c:
//   R   = exp(S - a - c)           dS += R dR   da_i -= sum_j (R dR)_ij   dc_j -= sum_i (R dR)_ij
//   c_j = lse_i (S_ij - a_i)       dS_ij += W_ij dc_j   da_i -= sum_j W_ij dc_j
//   a_i = lse_j (S_ij - c'_j)      dS_ij += W_ij da_i   dc'_j = -sum_i W_ij da_i    (c' before it)
#include "attention/blocks/sinkhorn.hpp"

#include "attention/blocks/sinkhorn_lines.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/kernels/reduce.hpp"
#include "tensor/movement/layout.hpp"

namespace skytape::attention {
namespace {

void require_square(const char* op, const Tensor& x) {
  ENSURE(x.rank() == 4 && x.size(2) == x.size(3), op, ": expected [B, H, Q, Q], got ", x);
}

void log_sums(const Tensor& x, const Tensor& shift, Tensor sums) {
  dispatch_float(x.dtype(), [&]<class T>() {
    cpu::rows(x.rows(), x.cols(),
              LogSums<T>{x.data<T>(), shift.data<T>(), sums.data<T>(), x.cols()});
  });
}

void add_log_sums_backward(const Tensor& x, const Tensor& row, const Tensor& column,
                           const Tensor& g, Tensor& dx, Tensor& drow) {
  dispatch_float(x.dtype(), [&]<class T>() {
    cpu::rows(x.rows(), x.cols(),
              LogSumsBackward<T>{x.data<T>(), row.data<T>(), column.data<T>(), g.data<T>(),
                                 dx.data<T>(), drow.data<T>(), x.cols()});
  });
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

void sinkhorn_on(Cpu, const Tensor& scores, SinkhornForward& result) {
  const Tensor transposed = tensor::transpose(scores);
  Tensor column = Tensor::zeros(scores.shape().first(3), scores.dtype(), scores.device());
  for (std::int64_t step = 0; step < result.rows.size(0); ++step) {
    log_sums(scores, column, result.rows[step]);
    column = result.columns[step];
    log_sums(transposed, result.rows[step], column);
  }
  const Tensor row = result.rows[result.rows.size(0) - 1];
  dispatch_float(scores.dtype(), [&]<class T>() {
    cpu::map(scores.numel(), Matrix<T>{scores.data<T>(), row.data<T>(), column.data<T>(),
                                       result.matrix.data<T>(), scores.cols()});
  });
}

void sinkhorn_backward_on(Cpu, const Tensor& scores, const SinkhornForward& saved,
                          const Tensor& dmatrix, Tensor& ds) {
  const Tensor transposed = tensor::transpose(scores);
  const Tensor none = zeros_like(saved.rows[0]);  // c before the first step
  ds = tensor::multiply(saved.matrix, dmatrix);
  Tensor ds_transposed = zeros_like(scores);           // what falls on rows of S^T
  Tensor da = tensor::affine(tensor::sum(ds, 3), -1);  // [B, H, Q]
  Tensor dc = tensor::affine(tensor::sum(ds, 2), -1);
  for (std::int64_t step = saved.rows.size(0); step-- > 0;) {
    const Tensor a = saved.rows[step];
    add_log_sums_backward(scores, a, saved.columns[step], dc, ds, da);
    const Tensor before = step == 0 ? none : saved.columns[step - 1];
    dc = zeros_like(none);
    add_log_sums_backward(transposed, before, a, da, ds_transposed, dc);
    da = zeros_like(none);
  }
  tensor::accumulate(ds, tensor::transpose(ds_transposed));
}

SinkhornForward sinkhorn(const Tensor& scores, std::int64_t steps) {
  require_square("sinkhorn", scores);
  ENSURE(steps >= 1, "sinkhorn: expected at least one step, got ", steps);
  const std::int64_t b = scores.size(0), h = scores.size(1), q = scores.size(2);
  const auto potentials = [&] {
    return Tensor::empty({steps, b, h, q}, scores.dtype(), scores.device());
  };
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
