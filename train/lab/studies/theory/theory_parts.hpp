// Functions with which several of the theory's statements measure; f64, CPU.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <vector>

#include "tensor/core/tensor.hpp"
#include "tensor/gemm/linear_algebra.hpp"
#include "train/lab/studies/theory/theory.hpp"

namespace skytape::train {

/// A case for each value, "d = 16": `measure` gives what is found there and its bound.
template <class Values, class Measure>
[[nodiscard]] std::vector<Trial> trials_over(const char* letter, const Values& values,
                                             const Measure& measure) {
  std::vector<Trial> trials;
  for (const std::int64_t value : values) {
    const auto [measured, bound] = measure(value);
    trials.push_back({fmt::format("{} = {}", letter, value), measured, bound});
  }
  return trials;
}

/// P = softmax(Q K^T / sqrt p) of the first n queries and keys: [n, n].
[[nodiscard]] Tensor attention_of(const TheorySizes& sizes, std::int64_t n, std::uint64_t seed);

/// D^(-1/2) M D^(-1/2) with the row sums D of M [1, 1, d, d].
[[nodiscard]] Tensor scaled_by_row_sums(const Tensor& m);

/// Eigenvalues of one symmetric matrix [1, 1, n, n], largest first, and its decomposition.
[[nodiscard]] std::vector<double> eigenvalues(const Tensor& m);
[[nodiscard]] tensor::SymmetricEigen decomposition(const Tensor& m);

/// |M|_2 of one matrix [1, 1, m, n].
[[nodiscard]] double spectral_norm(const Tensor& m);

/// Ridge leverage scores diag(B (B + L I)^-1) of B, of which the decomposition is given; their sum
/// is B's statistical dimension.
[[nodiscard]] std::vector<double> leverage_scores(const tensor::SymmetricEigen& b, double ridge);

/// Smallest ridge L whose largest leverage score is at most `leverage`. Infinite unless leverage >
/// 0; 0 from 1 on.
[[nodiscard]] double ridge_with_leverage(const tensor::SymmetricEigen& b, double leverage);

}  // namespace skytape::train
