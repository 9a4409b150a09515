#include "attention/landmarks/scaled_inverse.hpp"

#include "attention/landmarks/scaled_inverse_rows.hpp"
#include "autograd/ops.hpp"
#include "tensor/core/on_device.hpp"
#include "tensor/gemm/gemm.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/kernels/reduce.hpp"

namespace skytape::attention {

using tensor::multiply;

Tensor scaled_inverse_times(const Tensor& m, const Tensor& p, const InverseConfig& config,
                            ScaledInverseSaved& saved) {
  require_same_kind("scaled_inverse", {&m, &p});
  ENSURE(m.rank() == 4 && m.size(2) == m.size(3) && p.rank() == 4 &&
             p.shape().first(3) == m.shape().first(3),
         "scaled_inverse: expected m [B, H, L, L] and p [B, H, L, J], got m ", m, ", p ", p);
  saved.r = empty_like(m, m.shape().with(3, 1));
  saved.s = empty_like(p);
  Tensor scaled = empty_like(m);  // [B, H, L, L]: M^
  on_device(m.device(), [&](auto tag) { inverse_roots_on(tag, joined(m), saved.r); });  // (1)
  on_device(m.device(), [&](auto tag) {
    scale_rows_on(tag, joined(m), joined(p), saved.r, scaled, saved.s);  // (1), (3)
  });
  const Tensor z = inverse_forward(scaled, config, saved.inverse);  // (2)
  saved.f = inverse_times(z, saved.s);                              // (3)
  return multiply(saved.f, saved.r);                                // (3)
}

// (3)  dF = R dT   dZ = dF S^T   dS = Z^T dF   dP = R dS   dr = row_sum(dT F) + row_sum(dS P)
// (2)  dM^ = iterative inverse backward of dZ
// (1)  M^ = R M R and S = R P. With E = dM^ M^ (entrywise), all that r gets is
//        dr = row_sum(dT F) + (row_sum(dS S) + row_sum(E) + column_sum(E)) / r
//      and, as dr/d(M 1) = -r^3 / 2,
//        dM = R dM^ R - (r^3 dr / 2) 1^T                              (scaled_inverse_rows.hpp)
ScaledInverseGradients scaled_inverse_backward(const ScaledInverseSaved& saved, const Tensor& dt) {
  const Tensor &r = saved.r, &s = saved.s;
  const Tensor z = saved.inverse.result().reshape(s.shape().with(3, s.size(2)));
  const Tensor df = multiply(dt, r);                             // [B, H, L, J]
  const auto [dz, ds] = inverse_times_backward(z, s, df);        // [B, H, L, L], [B, H, L, J]
  const Tensor dm_scaled = inverse_backward(saved.inverse, dz);  // [B, H, L, L]

  const Tensor e = multiply(dm_scaled, saved.inverse.m.reshape(dz.shape()));  // [B, H, L, L]
  ScaledInverseGradients d{empty_like(dz), empty_like(ds)};
  const ScaledRows rows{r, dm_scaled, e, tensor::sum(e, 2), dt, saved.f, ds, s};
  on_device(dt.device(), [&](auto tag) { scaled_gradients_on(tag, rows, d.dm, d.dp); });
  return d;
}

Var scaled_inverse_reference(Var m, Var p, const InverseConfig& config) {
  const Var r = reciprocal(sqrt(sum(m, 3, true)));                // [B, H, L, 1]
  const Var z = inverse_reference(m * r * transpose(r), config);  // [B, H, L, L]
  return matmul(z, p * r) * r;
}

}  // namespace skytape::attention
