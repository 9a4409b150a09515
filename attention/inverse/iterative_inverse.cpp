// The iterative inverse: its steps and their adjoint derived, its start, what is saved, the
// reference.
//
// The step. With X = M V and E = I - X the exact inverse is V (I + E + E^2 + …). A step takes of
// this
//
//   next = V (I + E + E^2 + E^3 / 4)
//
// in four products: in X the bracket is (13 I - 15 X + 7 X^2 - X^3) / 4, by Horner's rule
//
//   X = M V                                                                           (2a)
//   R = 15 I - 7 X + X X                                                              (2b)
//   P = 13 I - X R                                                                    (2c)
//   next = V P / 4                                                                    (2d)
//
// and I - M next = I - (I - E)(I + E + E^2 + E^3 / 4) = E^3 (3 I + E) / 4: third order.
//
// Its adjoint. C = A B has dA = dC B^T and dB = A^T dC; line by line from the last one, where dV
// and dX gather what every use of V and X adds:
//
//   dP = V^T dnext / 4   dV = dnext P^T / 4                                           from (2d)
//   dR = -X^T dP         dX = -dP R^T                                                 from (2c)
//   dX += -7 dR + dR X^T + X^T dR                                                     from (2b)
//   dM += dX V^T         dV += M^T dX                                                 from (2a)
//
// Eight products; dV is dnext of the step before. M is in every step, so that dM is a sum over
// steps.
//
// The start. V_0 = c M^T with c = 1 / sum_i M[i, j], j the largest column:                (1)
//
//   dM += c dV_0^T       dc = sum of dV_0^T M (entrywise)     dM[:, j] -= c^2 dc
//
// and none of dc where c is a constant (detach_start).
//
// iterative_inverse_steps.hpp has the step and its adjoint in code, line by line.
#include "attention/inverse/iterative_inverse.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "attention/inverse/iterative_inverse_plan.hpp"
#include "attention/inverse/iterative_inverse_steps.hpp"
#include "attention/inverse/square_sizes.hpp"
#include "autograd/ops.hpp"
#include "tensor/core/on_device.hpp"
#include "tensor/gemm/precision.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/kernels/reduce.hpp"
#include "tensor/launch/graph.hpp"
#include "tensor/movement/layout.hpp"

namespace skytape::attention {

std::vector<Option> InverseConfig::options() {
  return {Option::integer("inverse_steps", steps, 1, 100, "steps of the iterative inverse"),
          Option::choice("inverse_start", start, {"official", "per_matrix"},
                         "largest column sum of the whole batch, or of each matrix"),
          Option::choice("inverse_backward", backward, {"unrolled", "implicit"},
                         "gradient of the steps, or of the exact inverse"),
          Option::flag("detach_start", detach_start,
                       "the start's coefficient is a constant to the derivative")
              .idle_if(backward == "implicit", {"inverse_backward"})};
}

Cost inverse_cost(double size) {
  const double product = size * size * size;
  const auto steps = static_cast<double>(InverseConfig().steps);
  return {4 * steps * product, 8 * steps * product};
}

namespace {

/// Matrices [G, L, L] of any device, with library products.
struct BatchedAlgebra {
  using Matrix = Tensor;

  void gemm(Op op_a, const Tensor& a, Op op_b, const Tensor& b, Tensor& c, double alpha,
            double beta) const {
    tensor::gemm(a, op_a, b, op_b, c, alpha, beta);
  }
  void shifted(const Tensor& x, double scale, double shift, Tensor& y) const {
    on_device(x.device(), [&](auto tag) { shifted_identity_on(tag, x, scale, shift, y); });
  }
};

/// All leading axes as one: [G, L, L].
Tensor as_batch(const char* op, const Tensor& m) {
  ENSURE(m.defined() && m.rank() >= 2 && m.size(-1) == m.size(-2) && m.size(-1) > 0, op,
         ": expected square matrices [..., L, L] with L > 0, got ", m);
  return m.reshape({m.numel() / (m.size(-1) * m.size(-1)), m.size(-1), m.size(-1)});
}

/// dM of M's exact inverse Z: -Z^T dZ Z^T; all [G, L, L].
Tensor implicit_backward(const Tensor& z, const Tensor& dz) {
  const Tensor left = tensor::matmul(z, dz, Op::transpose, Op::none);  // [G, L, L]
  Tensor dm = empty_like(z);                                           // [G, L, L]
  tensor::gemm(left, Op::none, z, Op::transpose, dm, -1, 0);
  return dm;
}

/// Column sums, those of a scope's matrices side by side: m [G, L, L] -> [G / scope, scope L].
Tensor column_sums_by_scope(const Tensor& m, std::int64_t scope) {
  return tensor::sum(m, 1).reshape({m.size(0) / scope, scope * m.size(1)});
}

/// dc of each scope from the shares of its matrices: [G, L] -> [G / scope]; of single ones the
/// shares.
Tensor sum_over_scope(const Tensor& dc, std::int64_t scope) {
  if (scope == 1) return dc;
  const std::int64_t scopes = dc.size(0) / scope;
  if (scopes == 1) return tensor::sum_all(dc).reshape({1});
  return tensor::sum(dc.reshape({scopes, scope * dc.size(1)}), 1);
}

}  // namespace

InverseTrace empty_trace(const Tensor& start, std::int64_t steps, InverseKept kept) {
  InverseTrace trace{{start}, {}, {}, {}};
  switch (kept) {
    case InverseKept::factors:
      for (std::int64_t t = 0; t < steps; ++t) {
        trace.factors.push_back({empty_like(start), empty_like(start), empty_like(start)});
        trace.iterates.push_back(empty_like(start));
      }
      break;
    case InverseKept::iterates: {
      const Shape& one = start.shape();
      trace.together = empty_like(start, {steps, one[0], one[1], one[2]});
      for (std::int64_t t = 0; t < steps; ++t) trace.iterates.push_back(trace.together[t]);
      break;
    }
    case InverseKept::planes: {
      const std::int64_t rows = square::rows_of(start.size(1));
      trace.planes = empty_like(start, {start.size(0), 2 + 4 * steps, rows, rows});
      trace.iterates.push_back(empty_like(start));
    }
  }
  return trace;
}

void inverse_steps_batched(const Tensor& m, InverseTrace& trace) {
  const PrecisionScope exact(m.device(), Precision::fp32);
  const BatchedAlgebra on;
  for (std::size_t t = 0; t < trace.factors.size(); ++t) {
    inverse_step(on, m, trace.iterates[t], trace.factors[t], trace.iterates[t + 1]);
  }
}

void inverse_steps_backward_batched(const Tensor& m, const InverseTrace& trace, const Tensor& dz,
                                    Tensor& dm, Tensor& dstart) {
  const PrecisionScope exact(m.device(), Precision::fp32);
  const BatchedAlgebra on;
  InverseGradients<Tensor> gradients{empty_like(m), empty_like(m), empty_like(m)};
  Tensor dnext = dz.clone(), dv = empty_like(m);  // [G, L, L]
  dm.fill(0);
  for (std::size_t t = trace.factors.size(); t-- > 0;) {
    inverse_step_backward(on, m, trace.iterates[t], trace.factors[t], gradients, dnext, dv, dm);
    std::swap(dnext, dv);
  }
  dstart = dnext;
}

Tensor shifted_identity(const Tensor& x, double scale, double shift) {
  (void)as_batch("shifted_identity", x);
  Tensor y = empty_like(x);  // [..., L, L]
  on_device(x.device(), [&](auto tag) { shifted_identity_on(tag, x, scale, shift, y); });
  return y;
}

InverseConfig InverseConfig::in(const Call& call) const {
  InverseConfig config = *this;
  config.alone = call.alone;
  return config;
}

std::int64_t InverseConfig::scope(const Shape& m) const {
  const std::int64_t matrices = m.numel() / (m[m.rank() - 1] * m[m.rank() - 1]);
  if (start != "official") return 1;
  return alone ? matrices / m[0] : matrices;
}

Tensor inverse_forward(const Tensor& m, const InverseConfig& config, InverseSaved& saved) {
  const Tensor batch = as_batch("iterative_inverse", m);  // [G, L, L]
  saved = {config, batch, {}, {}, {}};
  if (batch.size(0) == 0) {
    saved.trace.iterates = {batch};
    return m;
  }
  auto [largest, argmax] =  // [G / scope]
      tensor::max(column_sums_by_scope(batch, config.scope(m.shape())), 1);
  saved.coefficient = empty_like(largest);
  saved.argmax = argmax;
  Tensor start = tensor::transpose(batch);  // [G, L, L]
  on_device(m.device(), [&, &sums = largest](auto tag) {
    scale_start_on(tag, sums, saved.coefficient, start);  // (1)
  });

  const InverseKept kept =
      on_device(m.device(), [&](auto tag) { return inverse_kept_on(tag, batch); });
  saved.trace = empty_trace(start, config.steps, kept);
  on_device(m.device(), [&](auto tag) { inverse_steps_on(tag, batch, saved.trace); });  // (2)
  if (config.backward == "implicit") {
    saved.trace.factors.clear();
    saved.trace.planes = {};
  }
  return saved.result().reshape(m.shape());
}

Tensor inverse_backward(const InverseSaved& s, const Tensor& dz) {
  const Tensor upstream = as_batch("iterative_inverse backward", dz);  // [G, L, L]
  ENSURE(upstream.shape() == s.m.shape(), "iterative_inverse backward: matrices are ", s.m,
         ", their gradient is ", dz);
  if (dz.numel() == 0) return dz;
  if (s.config.backward == "implicit") {
    const PrecisionScope exact(dz.device(), Precision::fp32);
#ifndef NDEBUG
    if (!capturing()) {  // a capture cannot read back; the step ran directly before it
      const double residual = inverse_residual(s.m, s.result());
      ENSURE(residual <= 1e-3, "iterative_inverse: the implicit gradient needs a converged ",
             "inverse, but |I - M Z| is ", residual, " after ", s.config.steps, " steps");
    }
#endif
    return implicit_backward(s.result(), upstream).reshape(dz.shape());
  }
  Tensor dm = empty_like(s.m), dstart = empty_like(s.m);  // [G, L, L]
  on_device(dz.device(), [&](auto tag) {
    inverse_steps_backward_on(tag, s.m, s.trace, upstream, dm, dstart);  // (2)
  });

  // (1)
  const Tensor dstart_t = tensor::transpose(dstart);  // [G, L, L]
  Tensor dc = empty_like(s.m, s.m.shape().first(2));  // [G, L]
  on_device(dz.device(),
            [&](auto tag) { start_backward_on(tag, s.m, dstart_t, s.coefficient, dm, dc); });
  if (s.config.detach_start) return dm.reshape(dz.shape());
  dc = sum_over_scope(dc, s.m.size(0) / s.coefficient.numel());
  on_device(dz.device(),
            [&](auto tag) { add_to_columns_on(tag, s.coefficient, s.argmax, dc, dm); });
  return dm.reshape(dz.shape());
}

Tensor inverse_times(const Tensor& z, const Tensor& s) {
  const PrecisionScope exact(z.device(), Precision::fp32);
  return tensor::matmul(z, s);
}

InverseTimesGradients inverse_times_backward(const Tensor& z, const Tensor& s, const Tensor& df) {
  const PrecisionScope exact(z.device(), Precision::fp32);
  return {tensor::matmul(df, s, Op::none, Op::transpose),
          tensor::matmul(z, df, Op::transpose, Op::none)};
}

Var inverse_reference(Var m, const InverseConfig& config) {
  Tape& tape = m.tape();
  const Tensor value = m.value();  // [..., L, L]
  const std::int64_t size = value.size(-1);
  std::vector<double> unit(size * size, 0.0);
  for (std::int64_t i = 0; i < size; ++i) unit[i * size + i] = 1;
  const Var eye = tape.constant(Tensor::from(unit, {size, size}, value.dtype(), value.device()));

  const Var sums = sum(m, m.shape().rank() - 2, true);  // [..., 1, L]
  Var largest;                                          // [..., 1, 1], or [1] for "official"
  if (config.start == "official" && config.alone) {
    const Var of_examples =
        max(reshape(sums, {value.size(0), sums.shape().numel() / value.size(0)}), 1);
    std::vector<std::int64_t> shape(static_cast<std::size_t>(value.rank()), 1);
    shape[0] = value.size(0);
    largest = reshape(of_examples, Shape(shape));  // [B, 1, ..., 1]
  } else if (config.start == "official") {
    largest = max(reshape(sums, {1, value.numel() / size}), 1);
  } else {
    largest = max(sums, m.shape().rank() - 1, true);
  }
  Var c = reciprocal(largest);
  if (config.detach_start) c = tape.constant(c.value());
  Var v = transpose(m) * c;                          // (1)
  for (std::int64_t t = 0; t < config.steps; ++t) {  // (2)
    const Var x = matmul(m, v);
    const Var r = affine(eye, 15) - matmul(x, affine(eye, 7) - x);
    const Var p = affine(eye, 13) - matmul(x, r);
    v = affine(matmul(v, p), 0.25);
  }
  if (config.backward != "implicit") return v;
  // The value of v with the derivative of -Z M Z, Z constant: the difference below is zero.
  const Var z = tape.constant(v.value()), constant = tape.constant(value);
  return z + matmul(matmul(z, constant - m), z);
}

double inverse_residual(const Tensor& m, const Tensor& z) {
  const Tensor matrices = as_batch("inverse_residual", m);
  const Tensor product = tensor::matmul(matrices, as_batch("inverse_residual", z));
  const Tensor rest = shifted_identity(product, -1, 1);  // I - M Z
  const Tensor flat =
      rest.reshape({rest.size(0), rest.numel() / std::max<std::int64_t>(rest.size(0), 1)});
  double worst = 0;
  for (const double square : tensor::row_dot(flat, flat).to_vector()) {
    worst = std::max(worst, std::sqrt(square));
  }
  return worst;
}

}  // namespace skytape::attention
