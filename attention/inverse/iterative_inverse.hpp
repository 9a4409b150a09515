// Iterative inverse of a batch of matrices: what Skyformer and both Nystrom methods put between
// their factors (Skyformer, sec. 4.4; Nystromformer, Xiong et al. 2021, eq. 11).
//
//   V_0 = c M^T     c = 1 / s, s the largest column sum of M                                    (1)
//   X = M V   R = 15 I - X (7 I - X)   P = 13 I - X R   V <- V P / 4        `steps` times       (2)
//
// An eigenvalue e of I - M V becomes e^3 (3 + e) / 4: third order, but a small eigenvalue x of M V
// first has to grow, by 3.25 a step. Six steps, the papers' number, rarely give an inverse; they
// give a smooth spectral filter, and the number of steps is part of the model. The gradient is
// therefore that of the steps, unless asked otherwise.
//
// Notation: G matrices (all leading axes), L rows and columns of a matrix. R and P are a step's,
// not random features and the factor of scaled_inverse.hpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "attention/method.hpp"
#include "attention/options.hpp"
#include "autograd/tape.hpp"
#include "tensor/core/tensor.hpp"

namespace skytape::attention {

struct InverseConfig {
  std::int64_t steps = 6;             // LRA: 6
  std::string start = "per_matrix";   // s of each matrix; "official": one for the whole batch
  std::string backward = "unrolled";  // "implicit": of the exact inverse, right where converged
  bool detach_start = false;          // c is a constant to the derivative (papers' code: no)
  bool alone = false;                 // Call::alone: "official" means one s for each example

  [[nodiscard]] bool needs_whole_batch() const { return start == "official"; }

  /// For a call, which says whether examples are alone.
  [[nodiscard]] InverseConfig in(const Call& call) const;
  /// Returns how many matrices of m [B, ..., L, L] share an s: one, an example's, or all.
  [[nodiscard]] std::int64_t scope(const Shape& m) const;

  /// inverse_steps, inverse_start, inverse_backward, detach_start.
  [[nodiscard]] std::vector<Option> options();
};

/// Returns the cost of the default number of steps for an L x L matrix: four products a step, and
/// eight in backward.
[[nodiscard]] Cost inverse_cost(double size);

/// X, R and P of a step (2), on whatever handle of a matrix.
template <class Matrix> struct InverseFactors { Matrix x, r, p; };

/// The kept results of the steps; each tensor [G, L, L].
struct InverseTrace {
  std::vector<Tensor> iterates;  // V_0 … V_steps; with planes V_0 and V_steps alone
  std::vector<InverseFactors<Tensor>> factors;  // of each step, or empty
  Tensor together;                              // [steps, G, L, L]: V_1 …, computed by blocks
  Tensor planes;  // or M, V, X, R and P, each number as two bf16 (plane_product.hpp)
};

/// The tensors that backward reads. They take (4 steps + 2) G L^2 (by planes: three more G L^2, L
/// rounded up to 32, 64 or 128), or (steps + 2) G L^2 where X, R and P are computed again for three
/// products a step.
struct InverseSaved {
  InverseConfig config;
  Tensor m;  // [G, L, L]
  InverseTrace trace;
  Tensor coefficient;  // c: [G / scope], one for all matrices of a scope ("official")
  Tensor argmax;  // i32, shape of c: column of the largest sum (of scopes of several: g L + column)

  /// Z: [G, L, L].
  [[nodiscard]] const Tensor& result() const { return trace.iterates.back(); }
};

/// Z, nearly the inverse of M: [..., L, L] -> [..., L, L]. Fills `saved`.
[[nodiscard]] Tensor inverse_forward(const Tensor& m, const InverseConfig& config,
                                     InverseSaved& saved);

/// dM from dZ, both [..., L, L]: through the steps and c, or -Z^T dZ Z^T for "implicit", which in
/// debug builds refuses a residual |I - M Z| above 1e-3.
[[nodiscard]] Tensor inverse_backward(const InverseSaved& saved, const Tensor& dz);

/// Z S in true fp32 at every precision, [..., L, L] and [..., L, J] -> [..., L, J]. Z has entries of
/// both signs, as large as M's smallest eigenvalue is small, and Z S is small again: with S rounded
/// to bf16 rounding is all that is left after some 16 steps.
[[nodiscard]] Tensor inverse_times(const Tensor& z, const Tensor& s);

struct InverseTimesGradients {
  Tensor dz, ds;  // as z and s
};
/// dZ = dF S^T and dS = Z^T dF, as precisely: dM is -Z^T dZ Z^T.
[[nodiscard]] InverseTimesGradients inverse_times_backward(const Tensor& z, const Tensor& s,
                                                           const Tensor& df);

/// The same from basic operations: m [..., L, L] -> [..., L, L].
[[nodiscard]] Var inverse_reference(Var m, const InverseConfig& config);

/// Largest Frobenius norm of I - M Z over the matrices; reads back from the device.
[[nodiscard]] double inverse_residual(const Tensor& m, const Tensor& z);

/// scale x + shift I; x: [..., L, L].
[[nodiscard]] Tensor shifted_identity(const Tensor& x, double scale, double shift);

}  // namespace skytape::attention
