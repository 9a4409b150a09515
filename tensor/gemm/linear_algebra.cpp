#include "tensor/gemm/linear_algebra.hpp"

// g++ 12 takes the "undefined" operands inside its own AVX-512 intrinsics for uninitialised reads.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <Eigen/Eigenvalues>
#include <algorithm>
#include <cmath>
#include <limits>

#include "tensor/gemm/gemm.hpp"
#include "tensor/random/random.hpp"

namespace skytape::tensor {
namespace {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using View = Eigen::Map<const Matrix>;

/// `a` as f64 on the CPU; refuses anything but a matrix of real numbers.
Tensor as_matrix(const char* op, const Tensor& a) {
  ENSURE(a.defined() && a.rank() == 2 && a.dtype() != DType::i32, op,
         ": expected a matrix of f32 or f64, got ", a);
  return a.to(Device::cpu).to(DType::f64);
}

View view(const Tensor& a) { return View(a.data<double>(), a.size(0), a.size(1)); }

Tensor as_finite_matrix(const char* op, const Tensor& a) {
  Tensor matrix = as_matrix(op, a);
  ENSURE(view(matrix).allFinite(), op, ": an entry of ", a, " is not finite");
  return matrix;
}

Tensor to_tensor(const Eigen::Ref<const Matrix>& matrix) {
  Tensor out = Tensor::empty({matrix.rows(), matrix.cols()}, DType::f64, Device::cpu);
  Eigen::Map<Matrix>(out.data<double>(), matrix.rows(), matrix.cols()) = matrix;
  return out;
}

// Eigen's decompositions apply reflections in blocks, for which it instantiates all of its products:
// most of what this file took to compile. The matrices here are small: one reflection at a time.
using Block = Eigen::Ref<Eigen::MatrixXd>;  // a corner of a matrix, by columns

/// Reflections H_i = I - tau_i (1, w_i) (1, w_i)^T.
class Reflections {
 public:
  explicit Reflections(std::int64_t rows) : work_(rows) {}
  /// The next one, which takes `x` to a multiple of the first unit vector: x becomes (that number,
  /// w_i).
  void add(Eigen::Ref<Eigen::VectorXd> x) {
    double tau = 0, kept = 0;
    x.makeHouseholderInPlace(tau, kept);
    x(0) = kept;
    tau_.push_back(tau);
  }
  /// block <- H_i block, where x is what add left.
  void left(std::int64_t i, const Eigen::Ref<const Eigen::VectorXd>& x, Block block) {
    const auto w = x.tail(x.size() - 1);
    block.applyHouseholderOnTheLeft(w, tau_[static_cast<std::size_t>(i)], work_.data());
  }
  /// block <- block H_i.
  void right(std::int64_t i, const Eigen::Ref<const Eigen::VectorXd>& x, Block block) {
    const auto w = x.tail(x.size() - 1);
    block.applyHouseholderOnTheRight(w, tau_[static_cast<std::size_t>(i)], work_.data());
  }
  /// The first columns of H_0 H_1 ..., as many as `columns` has: reflection i was left in its column
  /// i, from row i + below.
  [[nodiscard]] Eigen::MatrixXd product(const Eigen::MatrixXd& columns, std::int64_t below) {
    const std::int64_t m = columns.rows(), n = columns.cols();
    Eigen::MatrixXd q = Eigen::MatrixXd::Identity(m, n);
    for (auto i = static_cast<std::int64_t>(tau_.size()) - 1; i >= 0; --i) {
      const std::int64_t rows = m - i - below;
      left(i, columns.col(i).tail(rows), q.bottomRightCorner(rows, n - i - below));
    }
    return q;
  }

 private:
  std::vector<double> tau_;
  Eigen::VectorXd work_;
};

/// The factor Q of the thin QR decomposition of a, [m, n] with m >= n.
Tensor orthonormal_columns(const Tensor& a) {
  Eigen::MatrixXd b = view(a);
  Reflections reflections(b.rows());
  for (std::int64_t i = 0; i < b.cols(); ++i) {
    const std::int64_t rows = b.rows() - i;
    reflections.add(b.col(i).tail(rows));
    reflections.left(i, b.col(i).tail(rows), b.bottomRightCorner(rows, b.cols() - i - 1));
  }
  return to_tensor(reflections.product(b, 0));
}

}  // namespace

double spectral_norm(const Tensor& a, double tolerance) {
  const Tensor matrix = as_matrix("spectral_norm", a);  // [m, n]
  const View x = view(matrix);
  if (!x.allFinite()) return std::numeric_limits<double>::quiet_NaN();
  const double largest = x.size() == 0 ? 0 : x.cwiseAbs().maxCoeff();
  if (largest == 0) return 0;
  // Entries of at most 1 keep the products from overflowing.
  const Tensor scaled = to_tensor(x / largest);
  const bool tall = scaled.size(0) >= scaled.size(1);
  Tensor h = matmul(scaled, scaled, tall ? Op::transpose : Op::none,
                    tall ? Op::none : Op::transpose);  // [k, k]

  // With H_0 = h as it is now, A^T A or A A^T, and H_{j+1} = (H_j / t_j)^2, t_j = tr(H_j): the
  // largest eigenvalue of H_0 is the product of t_j^(1 / 2^j), times that of H_j / t_j, which lies
  // in [tr((H_j / t_j)^2), 1].
  double log_norm = std::log(largest);  // of the singular value: half the logarithm of H_0's
  double power = 0.5;                   // 1 / (2 * 2^j)
  for (;;) {
    Eigen::Map<Matrix> entries(h.data<double>(), h.size(0), h.size(1));
    const double trace = entries.trace();
    log_norm += power * std::log(trace);
    entries /= trace;
    const double lowest = entries.squaredNorm();  // tr(H^2), in [1 / k, 1]
    if (power * std::log(lowest) >= -tolerance) break;
    h = matmul(h, h);
    power /= 2;
  }
  return std::exp(log_norm);
}

std::vector<double> singular_values(const Tensor& a) {
  const Tensor matrix = as_finite_matrix("singular_values", a);
  const std::int64_t k = std::min(matrix.size(0), matrix.size(1));
  if (k == 0) return {};
  // Bidiagonal form by Householder reflections from both sides, of the tall one of A and A^T.
  Eigen::MatrixXd b = view(matrix);  // [l, k] with l >= k
  if (b.rows() < b.cols()) b.transposeInPlace();
  Eigen::VectorXd between(2 * k - 1);  // [2k - 1]: d_1, e_1, d_2, e_2, ... d_k
  Reflections of_columns(b.rows()), of_rows(b.rows());
  for (std::int64_t i = 0; i < k; ++i) {
    const std::int64_t below = b.rows() - i, right = k - i - 1;
    Eigen::VectorXd column = b.col(i).tail(below);
    of_columns.add(column);
    of_columns.left(i, column, b.bottomRightCorner(below, right));
    between(2 * i) = column(0);
    if (right == 0) break;
    Eigen::VectorXd row = b.row(i).tail(right).transpose();
    of_rows.add(row);
    of_rows.right(i, row, b.bottomRightCorner(below - 1, right));
    between(2 * i + 1) = row(0);
  }
  // The symmetric [2k, 2k] matrix with d_1, e_1, d_2, ... beside a diagonal of zeros has the
  // eigenvalues +-sigma (Golub and Kahan 1965), to an absolute error of rounding times sigma_1.
  Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> solver;
  solver.computeFromTridiagonal(Eigen::VectorXd::Zero(2 * k), between, Eigen::EigenvaluesOnly);
  ENSURE(solver.info() == Eigen::Success, "singular_values: the SVD of ", a, " did not converge");
  const Eigen::VectorXd values = solver.eigenvalues().tail(k).reverse().cwiseMax(0);
  return {values.begin(), values.end()};
}

SymmetricEigen symmetric_eigen(const Tensor& a) {
  const Tensor matrix = as_finite_matrix("symmetric_eigen", a);
  ENSURE(matrix.size(0) == matrix.size(1) && matrix.numel() > 0,
         "symmetric_eigen: expected a square matrix, got ", a);
  // A = Q T Q^T with tridiagonal T, by reflections from both sides; then T's own decomposition.
  Eigen::MatrixXd t = view(matrix);
  const std::int64_t n = t.rows();
  Reflections reflections(n);
  for (std::int64_t i = 0; i + 1 < n; ++i) {
    const std::int64_t rows = n - i - 1;
    reflections.add(t.col(i).tail(rows));
    reflections.left(i, t.col(i).tail(rows), t.bottomRightCorner(rows, rows));
    reflections.right(i, t.col(i).tail(rows), t.bottomRightCorner(rows, rows));
  }
  Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> solver;
  solver.computeFromTridiagonal(t.diagonal(), t.diagonal(-1), Eigen::ComputeEigenvectors);
  ENSURE(solver.info() == Eigen::Success, "symmetric_eigen: ", a, " did not converge");
  const Eigen::VectorXd values = solver.eigenvalues().reverse();
  const Tensor vectors = matmul(to_tensor(reflections.product(t, 1)),
                                to_tensor(solver.eigenvectors().rowwise().reverse()));
  return {{values.begin(), values.end()}, vectors};
}

Tensor leading_left_vectors(const Tensor& a, std::int64_t k, int passes) {
  constexpr std::int64_t kExtra = 10;
  constexpr std::uint64_t kKey = 0x5eed;  // of the start: any generic block will do
  const Tensor matrix = as_finite_matrix("leading_left_vectors", a);  // [m, n]
  const std::int64_t most = std::min(matrix.size(0), matrix.size(1));
  ENSURE(k >= 1 && k <= most, "leading_left_vectors: expected 1 to ", most, " vectors of ", a,
         ", got ", k);
  const std::int64_t width = std::min(k + kExtra, most);
  const Tensor start = normal({matrix.size(1), width}, Random{kKey, {}}, DType::f64, Device::cpu);
  Tensor q = orthonormal_columns(matmul(matrix, start));  // [m, width]
  for (int pass = 0; pass < passes; ++pass) {
    const Tensor back = orthonormal_columns(matmul(matrix, q, Op::transpose));  // [n, width]
    q = orthonormal_columns(matmul(matrix, back));
  }
  // Inside the span: the left singular vectors of Q^T A, in order, from its small Gram matrix.
  const Tensor small = matmul(q, matrix, Op::transpose);  // [width, n]
  const Tensor inside = symmetric_eigen(matmul(small, small, Op::none, Op::transpose)).vectors;
  return to_tensor(view(matmul(q, inside)).leftCols(k));
}

double condition_number(const std::vector<double>& singular_values) {
  constexpr double kCap = 1 / std::numeric_limits<double>::epsilon();
  ENSURE(!singular_values.empty(), "condition_number: of no singular values");
  const double largest = singular_values.front(), smallest = singular_values.back();
  return smallest > largest / kCap ? largest / smallest : kCap;
}

}  // namespace skytape::tensor
