#include "attention/pseudo_inverse.hpp"

// g++ 12 takes the "undefined" operands inside its own AVX-512 intrinsics for uninitialised reads.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <Eigen/Eigenvalues>
#include <vector>

namespace skytape::attention {

Tensor symmetric_pseudo_inverse(const Tensor& m, double cutoff) {
  ENSURE(m.defined() && m.rank() >= 2 && m.size(-1) == m.size(-2) && m.dtype() != DType::i32,
         "symmetric_pseudo_inverse: expected matrices [..., L, L] of f32 or f64, got ", m);
  ENSURE(m.device() == Device::cpu, "symmetric_pseudo_inverse: is for the CPU, got ", m);
  using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const std::int64_t size = m.size(-1), elements = size * size;
  std::vector<double> values = m.to_vector();  // one matrix after the other, replaced in place
  for (std::int64_t start = 0; start < m.numel(); start += elements) {
    Eigen::Map<Matrix> matrix(values.data() + start, size, size);
    const Eigen::SelfAdjointEigenSolver<Matrix> solver(matrix);
    ENSURE(solver.info() == Eigen::Success,
           "symmetric_pseudo_inverse: the eigendecomposition of a matrix of ", m,
           " did not converge");
    Eigen::VectorXd inverse = solver.eigenvalues();  // [L]
    const double smallest = cutoff * inverse.cwiseAbs().maxCoeff();
    for (double& value : inverse) value = std::abs(value) > smallest ? 1 / value : 0;
    const Matrix& vectors = solver.eigenvectors();  // [L, L]
    matrix = vectors * inverse.asDiagonal() * vectors.transpose();
  }
  return Tensor::from(values, m.shape(), m.dtype(), Device::cpu);
}

}  // namespace skytape::attention
