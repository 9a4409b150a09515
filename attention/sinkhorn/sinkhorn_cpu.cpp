// CPU half of Sinkhorn normalisation: one pass over all matrices after the other.
#include "attention/sinkhorn/sinkhorn.hpp"
#include "attention/sinkhorn/sinkhorn_lines.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/kernels/reduce.hpp"
#include "tensor/movement/layout.hpp"

namespace skytape::attention {
namespace {

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

void sinkhorn_on(Cpu, const Tensor& scores, SinkhornForward& result) {
  const Tensor transposed = tensor::transpose(scores);
  Tensor column = zeros_like(scores, scores.shape().first(3));
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

}  // namespace skytape::attention
