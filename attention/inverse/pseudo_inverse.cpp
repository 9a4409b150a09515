#include "attention/inverse/pseudo_inverse.hpp"

#include <algorithm>
#include <cmath>

#include "tensor/gemm/gemm.hpp"
#include "tensor/gemm/linear_algebra.hpp"

namespace skytape::attention {
namespace {

constexpr double kCutoff = 1e-10;  // of eigenvalues, relative to the largest magnitude

/// V diag(1 / lambda) V^T of one [L, L] = V diag(lambda) V^T, without the smallest eigenvalues.
Tensor pseudo_inverse(const Tensor& matrix) {
  const auto [values, vectors] = tensor::symmetric_eigen(matrix);
  const double smallest = kCutoff * std::max(std::abs(values.front()), std::abs(values.back()));
  const auto size = static_cast<std::int64_t>(values.size());
  Tensor scaled = vectors.clone();  // [L, L], column j times 1 / lambda_j
  for (std::int64_t i = 0; i < size; ++i) {
    double* row = scaled.data<double>() + i * size;
    for (std::int64_t j = 0; j < size; ++j)
      row[j] = std::abs(values[j]) > smallest ? row[j] / values[j] : 0;
  }
  return tensor::matmul(scaled, vectors, Op::none, Op::transpose);
}

}  // namespace

Tensor symmetric_pseudo_inverse(const Tensor& m) {
  ENSURE(m.defined() && m.rank() >= 2 && m.numel() > 0 && m.size(-1) == m.size(-2) &&
             m.dtype() != DType::i32,
         "symmetric_pseudo_inverse: expected matrices [..., L, L] of f32 or f64, got ", m);
  ENSURE(m.device() == Device::cpu, "symmetric_pseudo_inverse: is for the CPU, got ", m);
  const std::int64_t size = m.size(-1);
  const Tensor all = m.to(DType::f64).reshape({m.numel() / (size * size), size, size});
  Tensor out = empty_like(all);
  for (std::int64_t i = 0; i < all.size(0); ++i) out[i].copy_from(pseudo_inverse(all[i]));
  return out.reshape(m.shape()).to(m.dtype());
}

}  // namespace skytape::attention
