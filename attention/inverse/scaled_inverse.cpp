#include "attention/inverse/scaled_inverse.hpp"

#include "autograd/ops.hpp"
#include "tensor/gemm/gemm.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/kernels/reduce.hpp"
#include "tensor/movement/layout.hpp"

namespace skytape::attention {
namespace {

using tensor::multiply;
using tensor::Unary;
using tensor::unary;

/// Sums over the last axis, as a column: [B, H, L, n] -> [B, H, L, 1].
Tensor row_sums(const Tensor& x) { return tensor::sum(x, 3).reshape(x.shape().with(3, 1)); }
/// Entrywise product summed over the last axis, as a column.
Tensor row_dots(const Tensor& x, const Tensor& y) {
  return tensor::row_dot(x, y).reshape(x.shape().with(3, 1));
}
/// A column as a row: [B, H, L, 1] -> [B, H, 1, L].
Tensor as_row(const Tensor& column) {
  return column.reshape({column.size(0), column.size(1), 1, column.size(2)});
}

}  // namespace

Tensor scaled_inverse_times(const Tensor& m, const Tensor& p, const InverseConfig& config,
                            ScaledInverseSaved& saved) {
  require_same_kind("scaled_inverse", {&m, &p});
  ENSURE(m.rank() == 4 && m.size(2) == m.size(3) && p.rank() == 4 &&
             p.shape().first(3) == m.shape().first(3),
         "scaled_inverse: expected m [B, H, L, L] and p [B, H, L, J], got m ", m, ", p ", p);
  saved.r = unary(Unary::reciprocal, unary(Unary::sqrt, row_sums(m)));    // (1)
  const Tensor scaled = multiply(multiply(m, saved.r), as_row(saved.r));  // (1)
  const Tensor z = inverse_forward(scaled, config, saved.inverse);        // (2)
  saved.s = multiply(p, saved.r);                                         // (3)
  saved.f = tensor::matmul(z, saved.s);                                   // (3)
  return multiply(saved.f, saved.r);                                      // (3)
}

// (3)  dF = R dT   dr = rs(dT F)   dZ = dF S^T   dS = Z^T dF   dP = R dS   dr += rs(dS P)
// (2)  dM^ = iterative inverse backward of dZ
// (1)  E = dM^ M (entrywise): dr += (E r + E^T r); with E' = dM^ M^ = R E R this is
//      (rs(E') + cs(E')) / r, and rs(dS P) = rs(dS S) / r. Then, as dr/d(M 1) = -r^3 / 2,
//      dM = R dM^ R - (r^3 dr / 2) 1^T
ScaledInverseGradients scaled_inverse_backward(const ScaledInverseSaved& saved, const Tensor& dt) {
  const Tensor &r = saved.r, &s = saved.s;
  const Tensor z = saved.inverse.result().reshape(s.shape().with(3, s.size(2)));
  const Tensor df = multiply(dt, r);                                 // [B, H, L, J]
  const Tensor dz = tensor::matmul(df, s, Op::none, Op::transpose);  // [B, H, L, L]
  const Tensor ds = tensor::matmul(z, df, Op::transpose, Op::none);  // [B, H, L, J]
  const Tensor dm_scaled = inverse_backward(saved.inverse, dz);      // [B, H, L, L]

  const Tensor e = multiply(dm_scaled, saved.inverse.m.reshape(dz.shape()));  // [B, H, L, L]
  Tensor r_dr = row_dots(ds, s);                                              // [B, H, L, 1]: r dr
  tensor::accumulate(r_dr, row_sums(e));
  tensor::accumulate(r_dr, tensor::sum(e, 2).reshape(r.shape()));
  tensor::accumulate(r_dr, multiply(row_dots(dt, saved.f), r));
  const Tensor row_term = multiply(multiply(r, r), r_dr);  // [B, H, L, 1]: r^3 dr

  const Tensor dm = multiply(multiply(dm_scaled, r), as_row(r));  // [B, H, L, L]
  return {tensor::subtract(dm, tensor::affine(row_term, 0.5)), multiply(ds, r)};
}

Var scaled_inverse_reference(Var m, Var p, const InverseConfig& config) {
  const Var r = reciprocal(sqrt(sum(m, 3, true)));                // [B, H, L, 1]
  const Var z = inverse_reference(m * r * transpose(r), config);  // [B, H, L, L]
  return matmul(z, p * r) * r;
}

}  // namespace skytape::attention
