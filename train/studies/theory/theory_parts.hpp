// Linear algebra that several of the theory's statements measure with; f64, CPU.
#pragma once

#include <vector>

#include "tensor/core/tensor.hpp"
#include "tensor/gemm/linear_algebra.hpp"

namespace skytape::train {

/// Eigenvalues of one symmetric matrix [1, 1, n, n], largest first, and its decomposition.
[[nodiscard]] std::vector<double> eigenvalues(const Tensor& m);
[[nodiscard]] tensor::SymmetricEigen decomposition(const Tensor& m);

/// |M|_2 of one matrix [1, 1, m, n], |M|_F of any array.
[[nodiscard]] double spectral_norm(const Tensor& m);
[[nodiscard]] double frobenius(const Tensor& m);

/// Ridge leverage scores diag(B (B + L I)^-1) of B, of which the decomposition is given; their sum
/// is B's statistical dimension.
[[nodiscard]] std::vector<double> leverage_scores(const tensor::SymmetricEigen& b, double ridge);

/// Smallest ridge L whose largest leverage score is at most `leverage`. Infinite unless leverage > 0; 0
/// from 1 on.
[[nodiscard]] double ridge_with_leverage(const tensor::SymmetricEigen& b, double leverage);

}  // namespace skytape::train
