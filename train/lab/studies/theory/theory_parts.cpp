#include "train/lab/studies/theory/theory_parts.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tensor/gemm/gemm.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/kernels/reduce.hpp"
#include "tensor/norm/softmax.hpp"

namespace skytape::train {
namespace {

double largest_leverage(const tensor::SymmetricEigen& b, double ridge) {
  const std::vector<double> scores = leverage_scores(b, ridge);
  return *std::max_element(scores.begin(), scores.end());
}

}  // namespace

Tensor attention_of(const TheorySizes& sizes, std::int64_t n, std::uint64_t seed) {
  const Tensor q = theory_rows(n, sizes, seed, 1), k = theory_rows(n, sizes, seed, 2);
  const double scale = 1 / std::sqrt(static_cast<double>(sizes.width));
  return tensor::softmax(tensor::affine(tensor::matmul(q, k, Op::none, Op::transpose), scale));
}

Tensor scaled_by_row_sums(const Tensor& m) {
  const std::int64_t d = m.size(3);
  const Tensor r = tensor::unary(tensor::Unary::reciprocal,
                                 tensor::unary(tensor::Unary::sqrt, tensor::sum(m, 3)));
  return tensor::multiply(tensor::multiply(m, r.reshape({1, 1, d, 1})), r.reshape({1, 1, 1, d}));
}

std::vector<double> eigenvalues(const Tensor& m) { return decomposition(m).values; }

tensor::SymmetricEigen decomposition(const Tensor& m) {
  return tensor::symmetric_eigen(m.reshape({m.size(-2), m.size(-1)}));
}

double spectral_norm(const Tensor& m) {
  return tensor::spectral_norm(m.reshape({m.size(-2), m.size(-1)}));
}

std::vector<double> leverage_scores(const tensor::SymmetricEigen& b, double ridge) {
  const std::size_t n = b.values.size();
  const double* const u = b.vectors.data<double>();  // [n, n]
  std::vector<double> scores(n, 0.0);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < n; ++j) {
      const double value = std::max(b.values[j], 0.0);
      if (value > 0) scores[i] += u[i * n + j] * u[i * n + j] * value / (value + ridge);
    }
  }
  return scores;
}

double ridge_with_leverage(const tensor::SymmetricEigen& b, double leverage) {
  if (leverage <= 0) return std::numeric_limits<double>::infinity();
  if (leverage >= 1) return 0;
  double low = 0, high = 1;
  while (largest_leverage(b, high) > leverage) high *= 2;
  constexpr int kHalvings = 50;
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (low + high) / 2;
    (largest_leverage(b, middle) > leverage ? low : high) = middle;
  }
  return high;
}

}  // namespace skytape::train
