// Norms and decompositions of dense matrices for studies: f64 on the CPU, whatever the dtype.
#pragma once

#include <cstdint>
#include <vector>

#include "tensor/core/tensor.hpp"

namespace skytape::tensor {

/// Largest singular value of a [m, n]. Power iteration by repeated squaring: H, the smaller of
/// A^T A and A A^T scaled to trace 1, is squared until tr(H^2), a lower bound of its largest
/// eigenvalue, proves the result right to the relative `tolerance`. No start vector to be unlucky
/// with; m n k + 30 k^3 multiply-adds with k = min(m, n). NaN if an entry is not finite.
[[nodiscard]] double spectral_norm(const Tensor& a, double tolerance = 1e-10);

/// All min(m, n) singular values of a [m, n], largest first. Error if an entry is not finite.
[[nodiscard]] std::vector<double> singular_values(const Tensor& a);

struct SymmetricEigen {
  std::vector<double> values;  // [n], largest first
  Tensor vectors;              // f64[n, n], one per column
};
/// Eigenvalues and eigenvectors of a symmetric a [n, n], of which the lower triangle is read. Error
/// if an entry is not finite.
[[nodiscard]] SymmetricEigen symmetric_eigen(const Tensor& a);

/// Orthonormal f64[m, k] that spans nearly the k leading left singular vectors of a [m, n], best
/// first: block power iteration (Halko, Martinsson and Tropp 2011, algorithm 4.4) with four
/// passes over A A^T and ten extra columns. The projection error is at most a few per cent above
/// the truncated SVD's where the spectrum is flat, and equal to it where it decays.
[[nodiscard]] Tensor leading_left_vectors(const Tensor& a, std::int64_t k);

/// Largest over smallest singular value, capped at 1 / 2^-52, beyond which f64 cannot tell.
[[nodiscard]] double condition_number(const std::vector<double>& singular_values);

}  // namespace skytape::tensor
