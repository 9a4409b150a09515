// One step of the iterative inverse and its adjoint as chains of products, written once for both
// ways to run them: on one matrix at a time in a core's cache (CPU), or on the whole batch with
// library products (GPU: matrices that iterative_inverse.cu does not take). iterative_inverse.cpp
// derives them.
//
// `Algebra` offers gemm(op_a, a, op_b, b, c, alpha, beta): c = alpha op(a) op(b) + beta c, and
// shifted(x, scale, shift, y): y = scale x + shift I, on its own `Matrix` handles.
#pragma once

#include "attention/inverse/iterative_inverse.hpp"
#include "tensor/gemm/gemm.hpp"

namespace skytape::attention {

/// (2a) to (2d): X, R and P to `f`, and next = V P / 4; all [L, L].
template <class Algebra> void inverse_step(const Algebra& on, const typename Algebra::Matrix& m,
                                           const typename Algebra::Matrix& v,
                                           InverseFactors<typename Algebra::Matrix>& f,
                                           typename Algebra::Matrix& next) {
  on.gemm(Op::none, m, Op::none, v, f.x, 1, 0);        // (2a)
  on.shifted(f.x, -7, 15, f.r);                        // (2b): 15 I - 7 X
  on.gemm(Op::none, f.x, Op::none, f.x, f.r, 1, 1);    //       + X X
  on.shifted(f.x, 0, 13, f.p);                         // (2c): 13 I
  on.gemm(Op::none, f.x, Op::none, f.r, f.p, -1, 1);   //       - X R
  on.gemm(Op::none, v, Op::none, f.p, next, 0.25, 0);  // (2d)
}

/// Gradients on the way back through a step; all [L, L].
template <class Matrix> struct InverseGradients { Matrix dp, dx, dr; };

/// From dnext: dv = gradient of V through this step, dm += gradient of M.
template <class Algebra>
void inverse_step_backward(const Algebra& on, const typename Algebra::Matrix& m,
                           const typename Algebra::Matrix& v,
                           const InverseFactors<typename Algebra::Matrix>& f,
                           InverseGradients<typename Algebra::Matrix>& g,
                           const typename Algebra::Matrix& dnext, typename Algebra::Matrix& dv,
                           typename Algebra::Matrix& dm) {
  on.gemm(Op::transpose, v, Op::none, dnext, g.dp, 0.25, 0);  // (2d): dP = V^T dnext / 4
  on.gemm(Op::none, dnext, Op::transpose, f.p, dv, 0.25, 0);  //       dV = dnext P^T / 4
  on.gemm(Op::transpose, f.x, Op::none, g.dp, g.dr, -1, 0);   // (2c): dR = -X^T dP
  on.shifted(g.dr, -7, 0, g.dx);                              // (2b): dX = -7 dR
  on.gemm(Op::none, g.dp, Op::transpose, f.r, g.dx, -1, 1);   // (2c): dX += -dP R^T
  on.gemm(Op::none, g.dr, Op::transpose, f.x, g.dx, 1, 1);    // (2b): dX += dR X^T
  on.gemm(Op::transpose, f.x, Op::none, g.dr, g.dx, 1, 1);    //       dX += X^T dR
  on.gemm(Op::none, g.dx, Op::transpose, v, dm, 1, 1);        // (2a): dM += dX V^T
  on.gemm(Op::transpose, m, Op::none, g.dx, dv, 1, 1);        //       dV += M^T dX
}

}  // namespace skytape::attention
