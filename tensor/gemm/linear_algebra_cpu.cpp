#include "tensor/gemm/linear_algebra.hpp"

// g++ 12 takes the "undefined" operands inside its own AVX-512 intrinsics for uninitialised reads.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <Eigen/Eigenvalues>
#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "tensor/gemm/gemm.hpp"
#include "tensor/movement/layout.hpp"
#include "tensor/random/random.hpp"

namespace skytape::tensor {
namespace {

/// `a` as f64 on the CPU; refuses anything but a matrix of real numbers.
Tensor as_matrix(const char* op, const Tensor& a) {
  ENSURE(a.defined() && a.rank() == 2 && a.dtype() != DType::i32, op,
         ": expected a matrix of f32 or f64, got ", a);
  return a.to(Device::cpu).to(DType::f64);
}

std::span<double> entries(const Tensor& a) {
  return {a.data<double>(), static_cast<std::size_t>(a.numel())};
}

/// The largest absolute entry; NaN if one is not finite.
double largest_entry(const Tensor& a) {
  double largest = 0;
  for (const double entry : entries(a)) {
    if (!std::isfinite(entry)) return std::numeric_limits<double>::quiet_NaN();
    largest = std::max(largest, std::abs(entry));
  }
  return largest;
}

Tensor as_finite_matrix(const char* op, const Tensor& a) {
  Tensor matrix = as_matrix(op, a);
  ENSURE(!std::isnan(largest_entry(matrix)), op, ": an entry of ", a, " is not finite");
  return matrix;
}

// Reflections are plain loops: Eigen applies them in blocks or by expressions, and instantiating
// either was most of what this file took to compile. What it knows better is left to it, the
// eigenvalues of a tridiagonal matrix.

/// A matrix by columns, as a reflection reads it.
struct Columns {
  std::int64_t rows, cols;
  std::vector<double> entries = std::vector<double>(static_cast<std::size_t>(rows * cols));

  /// From a tensor [cols, rows].
  static Columns of_transposed(const Tensor& a) {
    return {a.size(1), a.size(0), {a.data<double>(), a.data<double>() + a.numel()}};
  }
  /// As a tensor [cols, rows].
  [[nodiscard]] Tensor transposed() const {
    return Tensor::from(entries, {cols, rows}, DType::f64, Device::cpu);
  }
  double& operator()(std::int64_t i, std::int64_t j) {
    return entries[static_cast<std::size_t>(j * rows + i)];
  }
  /// The last `size` entries of column j, of which there may be none.
  std::span<double> column_end(std::int64_t j, std::int64_t size) {
    return std::span(entries).subspan(static_cast<std::size_t>((j + 1) * rows - size),
                                      static_cast<std::size_t>(size));
  }
};

/// Reflections H_i = I - tau_i v v^T, v = (1, w_i).
class Reflections {
 public:
  /// The next one, which takes `x` to a multiple of the first unit vector: x becomes (that number,
  /// w_i).
  void add(std::span<double> x) {
    double tail = 0;
    for (const double entry : x.subspan(1)) tail += entry * entry;
    double tau = 0;
    if (tail > std::numeric_limits<double>::min()) {
      const double kept = -std::copysign(std::sqrt(x[0] * x[0] + tail), x[0]);  // no cancellation
      const double scale = 1 / (x[0] - kept);
      for (double& entry : x.subspan(1)) entry *= scale;
      tau = (kept - x[0]) / kept;
      x[0] = kept;
    } else {
      std::ranges::fill(x.subspan(1), 0.0);
    }
    tau_.push_back(tau);
  }
  /// The last x.size() rows of the last `cols` columns of m <- H_i times them; x is what add left.
  void left(std::int64_t i, std::span<const double> x, Columns& m, std::int64_t cols) const {
    const auto rows = static_cast<std::int64_t>(x.size());
    for (std::int64_t j = m.cols - cols; j < m.cols; ++j) {
      double* const column = m.column_end(j, rows).data();
      double product = column[0];  // v^T column
#pragma omp simd reduction(+ : product)
      for (std::int64_t r = 1; r < rows; ++r) product += x[r] * column[r];
      product *= tau(i);
      column[0] -= product;
#pragma omp simd
      for (std::int64_t r = 1; r < rows; ++r) column[r] -= product * x[r];
    }
  }
  /// The last `rows` rows of the last x.size() columns of m <- them times H_i.
  void right(std::int64_t i, std::span<const double> x, Columns& m, std::int64_t rows) const {
    const auto cols = static_cast<std::int64_t>(x.size());
    const auto v = [&](std::int64_t c) { return c == 0 ? 1 : x[c]; };
    std::vector<double> products(static_cast<std::size_t>(rows));  // tau (them v)
    const auto add = [&](double factor, const double* from, double* to) {
#pragma omp simd
      for (std::int64_t r = 0; r < rows; ++r) to[r] += factor * from[r];
    };
    for (std::int64_t c = 0; c < cols; ++c) {
      add(tau(i) * v(c), m.column_end(m.cols - cols + c, rows).data(), products.data());
    }
    for (std::int64_t c = 0; c < cols; ++c) {
      add(-v(c), products.data(), m.column_end(m.cols - cols + c, rows).data());
    }
  }
  /// The first columns of H_0 H_1 ..., as many as `columns` has: reflection i was left in its
  /// column i, from row i + below.
  [[nodiscard]] Columns product(Columns& columns, std::int64_t below) const {
    Columns q{columns.rows, columns.cols};
    for (std::int64_t i = 0; i < q.cols; ++i) q(i, i) = 1;
    for (auto i = static_cast<std::int64_t>(tau_.size()) - 1; i >= 0; --i) {
      left(i, columns.column_end(i, q.rows - i - below), q, q.cols - i - below);
    }
    return q;
  }

 private:
  [[nodiscard]] double tau(std::int64_t i) const { return tau_[static_cast<std::size_t>(i)]; }
  std::vector<double> tau_;
};

/// The factor Q of the thin QR decomposition of a, [m, n] with m >= n.
Tensor orthonormal_columns(const Tensor& a) {
  Columns b = Columns::of_transposed(transpose(a));
  Reflections reflections;
  for (std::int64_t i = 0; i < b.cols; ++i) {
    const std::span<double> column = b.column_end(i, b.rows - i);
    reflections.add(column);
    reflections.left(i, column, b, b.cols - i - 1);
  }
  return transpose(reflections.product(b, 0).transposed());
}

/// Eigenvalues and eigenvectors of a tridiagonal matrix.
struct TridiagonalEigen {
  std::vector<double> values;  // [n], smallest first
  Tensor vectors;              // f64[n, n], one per row; undefined where not asked for
};
/// Decomposes the symmetric matrix with this diagonal [n] and these entries [n - 1] next to it.
/// Throws Error, in the name of `op` and its operand `a`, without convergence.
TridiagonalEigen tridiagonal_eigen(const char* op, const Tensor& a,
                                   const std::vector<double>& diagonal,
                                   const std::vector<double>& beside, bool with_vectors) {
  const auto view = [](const std::vector<double>& x) {
    return Eigen::Map<const Eigen::VectorXd>(x.data(), static_cast<Eigen::Index>(x.size()));
  };
  Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> solver;  // by columns
  solver.computeFromTridiagonal(view(diagonal), view(beside),
                                with_vectors ? Eigen::ComputeEigenvectors : Eigen::EigenvaluesOnly);
  ENSURE(solver.info() == Eigen::Success, op, ": no convergence for ", a);
  const std::size_t n = diagonal.size();
  const std::span values(solver.eigenvalues().data(), n);
  TridiagonalEigen eigen{{values.begin(), values.end()}, {}};
  if (with_vectors) {
    const auto size = static_cast<std::int64_t>(n);
    const std::span columns(solver.eigenvectors().data(), n * n);
    eigen.vectors = Tensor::from(columns, {size, size}, DType::f64, Device::cpu);
  }
  return eigen;
}

}  // namespace

double spectral_norm(const Tensor& a, double tolerance) {
  const Tensor matrix = as_matrix("spectral_norm", a);  // [m, n]
  const double largest = largest_entry(matrix);
  if (std::isnan(largest) || largest == 0) return largest;
  // Entries of at most 1 keep the products from overflowing.
  const Tensor scaled = matrix.clone();
  for (double& entry : entries(scaled)) entry /= largest;
  const bool tall = scaled.size(0) >= scaled.size(1);
  Tensor h = matmul(scaled, scaled, tall ? Op::transpose : Op::none,
                    tall ? Op::none : Op::transpose);  // [k, k]
  const std::int64_t k = h.size(0);

  // With H_0 = h as it is now, A^T A or A A^T, and H_{j+1} = (H_j / t_j)^2, t_j = tr(H_j): the
  // largest eigenvalue of H_0 is the product of t_j^(1 / 2^j), times that of H_j / t_j, which lies
  // in [tr((H_j / t_j)^2), 1].
  double log_norm = std::log(largest);  // of the singular value: half the logarithm of H_0's
  double power = 0.5;                   // 1 / (2 * 2^j)
  for (;;) {
    double trace = 0, lowest = 0;  // lowest: tr(H^2), in [1 / k, 1]
    for (std::int64_t i = 0; i < k; ++i) trace += h.data<double>()[i * (k + 1)];
    log_norm += power * std::log(trace);
    for (double& entry : entries(h)) {
      entry /= trace;
      lowest += entry * entry;
    }
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
  Columns b = Columns::of_transposed(matrix.size(0) < matrix.size(1) ? matrix : transpose(matrix));
  std::vector<double> between;  // [2k - 1]: d_1, e_1, d_2, e_2, ... d_k
  Reflections of_columns, of_rows;
  for (std::int64_t i = 0; i < k; ++i) {
    const std::int64_t below = b.rows - i, right = k - i - 1;
    const std::span<double> column = b.column_end(i, below);
    of_columns.add(column);
    of_columns.left(i, column, b, right);
    between.push_back(column[0]);
    if (right == 0) break;
    std::vector<double> row;
    for (std::int64_t j = i + 1; j < k; ++j) row.push_back(b(i, j));
    of_rows.add(row);
    of_rows.right(i, row, b, below - 1);
    between.push_back(row[0]);
  }
  // The symmetric [2k, 2k] matrix with d_1, e_1, d_2, ... next to a diagonal of zeros has the
  // eigenvalues +-sigma (Golub and Kahan 1965), to an absolute error of rounding times sigma_1.
  const std::vector<double> zeros(static_cast<std::size_t>(2 * k));
  const TridiagonalEigen eigen = tridiagonal_eigen("singular_values", a, zeros, between, false);
  std::vector<double> values(eigen.values.rbegin(), eigen.values.rbegin() + k);
  for (double& value : values) value = std::max(value, 0.0);
  return values;
}

SymmetricEigen symmetric_eigen(const Tensor& a) {
  const Tensor matrix = as_finite_matrix("symmetric_eigen", a);
  ENSURE(matrix.size(0) == matrix.size(1) && matrix.numel() > 0,
         "symmetric_eigen: expected a square matrix, got ", a);
  // A = Q T Q^T with tridiagonal T, by reflections from both sides; then T's own decomposition.
  Columns t = Columns::of_transposed(transpose(matrix));
  const std::int64_t n = t.rows;
  Reflections reflections;
  std::vector<double> diagonal, beside;
  for (std::int64_t i = 0; i + 1 < n; ++i) {
    const std::int64_t rows = n - i - 1;
    const std::span<double> column = t.column_end(i, rows);
    reflections.add(column);
    reflections.left(i, column, t, rows);
    reflections.right(i, column, t, rows);
    diagonal.push_back(t(i, i));
    beside.push_back(column[0]);
  }
  diagonal.push_back(t(n - 1, n - 1));
  const TridiagonalEigen eigen = tridiagonal_eigen("symmetric_eigen", a, diagonal, beside, true);
  Tensor rising = matmul(eigen.vectors, reflections.product(t, 1).transposed());  // rows: (Q z)^T
  const std::vector<double> values(eigen.values.rbegin(), eigen.values.rend());
  // Largest first: the rows in reverse order.
  for (std::int64_t i = 0; i < n / 2; ++i) {
    double* const first = rising.data<double>();
    std::swap_ranges(first + i * n, first + (i + 1) * n, first + (n - 1 - i) * n);
  }
  return {values, transpose(rising)};
}

Tensor leading_left_vectors(const Tensor& a, std::int64_t k) {
  constexpr int kPasses = 4;
  constexpr std::int64_t kExtra = 10;
  constexpr std::uint64_t kKey = 0x5eed;  // of the start: any generic block will do
  const Tensor matrix = as_finite_matrix("leading_left_vectors", a);  // [m, n]
  const std::int64_t most = std::min(matrix.size(0), matrix.size(1));
  ENSURE(k >= 1 && k <= most, "leading_left_vectors: expected 1 to ", most, " vectors of ", a,
         ", got ", k);
  const std::int64_t width = std::min(k + kExtra, most);
  const Tensor start = normal({matrix.size(1), width}, Random{kKey, {}}, DType::f64, Device::cpu);
  Tensor q = orthonormal_columns(matmul(matrix, start));  // [m, width]
  for (int pass = 0; pass < kPasses; ++pass) {
    const Tensor back = orthonormal_columns(matmul(matrix, q, Op::transpose));  // [n, width]
    q = orthonormal_columns(matmul(matrix, back));
  }
  // Inside the span: the left singular vectors of Q^T A, in order, from its small Gram matrix.
  const Tensor small = matmul(q, matrix, Op::transpose);  // [width, n]
  const Tensor inside = symmetric_eigen(matmul(small, small, Op::none, Op::transpose)).vectors;
  return narrow(matmul(q, inside), 1, 0, k);
}

double condition_number(const std::vector<double>& singular_values) {
  constexpr double kCap = 1 / std::numeric_limits<double>::epsilon();
  ENSURE(!singular_values.empty(), "condition_number: of no singular values");
  const double largest = singular_values.front(), smallest = singular_values.back();
  return smallest > largest / kCap ? largest / smallest : kCap;
}

}  // namespace skytape::tensor
