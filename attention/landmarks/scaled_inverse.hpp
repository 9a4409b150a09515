// T = R Z R P with Z, nearly the inverse of R M R, from the iterative inverse: the middle of an
// attention matrix rebuilt from landmarks (Skyformer, sec. 4.4).
//
//   r = (M 1)^(-1/2)    R = diag(r)    M^ = R M R        its eigenvalues lie in (0, 1]          (1)
//   Z = iterative inverse of M^                                                                 (2)
//   S = R P   F = Z S   T = R F        P is projected first: nothing of size N x L is made      (3)
//
// It converges. M^ has the eigenvalues of diag(M 1)^-1 M, whose rows are positive and sum to one:
// at most 1; and M is positive definite: above 0. V_0 = M^ / s with s, the largest column sum, at
// least the largest eigenvalue e: those of M^ V_0 are at most e^2 / s <= 1, those of I - M^ V_0 lie
// in [0, 1).
//
// Notation: B batch, H heads, L landmarks, J columns of P.
#pragma once

#include "attention/inverse/iterative_inverse.hpp"
#include "autograd/tape.hpp"
#include "tensor/core/tensor.hpp"

namespace skytape::attention {

/// The tensors that backward reads; M^ and the iterates are in `inverse`.
struct ScaledInverseSaved {
  InverseSaved inverse;
  Tensor r;     // [B, H, L, 1]
  Tensor s, f;  // [B, H, L, J]
};

/// m [B, H, L, L], positive row sums; p [B, H, L, J] -> T [B, H, L, J].
[[nodiscard]] Tensor scaled_inverse_times(const Tensor& m, const Tensor& p,
                                          const InverseConfig& config, ScaledInverseSaved& saved);

struct ScaledInverseGradients {
  Tensor dm;  // [B, H, L, L]
  Tensor dp;  // [B, H, L, J]
};
[[nodiscard]] ScaledInverseGradients scaled_inverse_backward(const ScaledInverseSaved& saved,
                                                             const Tensor& dt);

/// The same from basic operations.
[[nodiscard]] Var scaled_inverse_reference(Var m, Var p, const InverseConfig& config);

}  // namespace skytape::attention
