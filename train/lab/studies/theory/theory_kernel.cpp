// Skyformer (Chen et al. 2021): kernel matrices of queries and keys, and what the Nystrom method
// makes of them.
//
// Notation: n queries and keys, p head width, X = [Q; K] p^(-1/4) the 2 n stacked rows, d
// landmarks, k(x, y) = exp(-|x - y|^2 / 2) the Gaussian kernel, e(x, y) = exp(x.y) that of softmax,
// B the completed matrix k(X, X) and C = k(Q, K) its upper right block.
#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <numeric>
#include <vector>

#include "attention/feature_maps/gaussian_kernel.hpp"
#include "attention/inverse/iterative_inverse.hpp"
#include "attention/inverse/pseudo_inverse.hpp"
#include "attention/sampling/landmarks.hpp"
#include "tensor/gemm/gemm.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/kernels/reduce.hpp"
#include "tensor/movement/layout.hpp"
#include "tensor/norm/softmax.hpp"
#include "train/lab/studies/exact_attention.hpp"
#include "train/lab/studies/theory/theory_parts.hpp"

namespace skytape::train {
namespace {

using attention::Kernel;

constexpr double kRounding = 1e-12;  // of an eigenvalue, relative to the largest
constexpr double kFailure = 0.1;     // delta of the statements that hold with a probability

/// The stacked rows: [1, 1, 2 n, p].
Tensor stacked(const TheorySizes& sizes, std::uint64_t seed) {
  Tensor x;
  if (sizes.real) {
    const std::array<Tensor, 2> halves = {sizes.real(seed, 1), sizes.real(seed, 2)};
    x = tensor::concat(halves, 0).reshape({1, 1, 2 * sizes.n, sizes.width});
  } else {
    x = theory_numbers({1, 1, 2 * sizes.n, sizes.width}, sizes, seed, 1);
  }
  return tensor::affine(x, std::pow(static_cast<double>(sizes.width), -0.25));
}

/// Landmarks of the rule that the theorem speaks of, any of the 2 n rows: [1, 1, d, p].
Tensor landmarks(const Tensor& x, std::int64_t count, std::uint64_t seed) {
  const std::int64_t n = x.size(2) / 2;
  attention::Call call;
  call.random = Random{seed, {}};
  const Tensor mask = Tensor::full({1, n}, 1, DType::f64, Device::cpu);
  const Tensor table = attention::draw_landmarks({"uniform", 1, count, 1}, mask, call);
  const Tensor q = tensor::narrow(x, 2, 0, n), k = tensor::narrow(x, 2, n, 2 * n);
  return attention::gather_landmarks(q, k, attention::landmark_index(table, q));
}

double smallest_over_largest(const std::vector<double>& eigenvalues) {
  return eigenvalues.back() / eigenvalues.front();
}

/// k(X, X) and e(X, X) are positive semidefinite (Lemma 1, and the text before it).
std::vector<Trial> psd(const TheorySizes& sizes, std::uint64_t seed) {
  const Tensor x = stacked(sizes, seed);
  std::vector<Trial> trials;
  for (const auto& [kernel, name] : {std::pair(Kernel::exponential, "exp(x.y)"),
                                     std::pair(Kernel::gaussian, "exp(-|x - y|^2 / 2)")}) {
    const auto values = eigenvalues(attention::kernel_matrix(kernel, x, x));
    trials.push_back({name, smallest_over_largest(values), -kRounding});
  }
  return trials;
}

/// The attention matrix alone, softmax(Q K^T), has no such property: why the paper completes it.
std::vector<Trial> attention_psd(const TheorySizes& sizes, std::uint64_t seed) {
  const Tensor x = stacked(sizes, seed);
  const Tensor q = tensor::narrow(x, 2, 0, sizes.n);
  const Tensor k = tensor::narrow(x, 2, sizes.n, 2 * sizes.n);
  const Tensor p = tensor::softmax(tensor::matmul(q, k, Op::none, Op::transpose));
  const Tensor symmetric = tensor::affine(tensor::add(p, tensor::transpose(p)), 0.5);
  return {{"", smallest_over_largest(eigenvalues(symmetric)), -kRounding}};
}

constexpr std::int64_t kLandmarks[] = {16, 32, 64, 128};

/// M^ = D^(-1/2) (k(W, W) + gamma I) D^(-1/2), D the row sums: |I - M^| <= 1 - gamma / max D < 1.
/// Its eigenvalues are those of a matrix with rows that sum to one, hence at most 1, and at least
/// those of M, hence gamma, over the largest row sum.
auto preconditioned(bool scaled) {
  return [scaled](const TheorySizes& sizes, std::uint64_t seed) {
    constexpr double kGamma = 0.1;
    const Tensor x = stacked(sizes, seed);
    return trials_over("d", std::array{16, 64, 128}, [&](std::int64_t d) {
      const Tensor w = landmarks(x, d, seed);
      const Tensor m = attention::shifted_identity(attention::kernel_matrix(Kernel::gaussian, w, w),
                                                   1, kGamma);  // [1, 1, d, d]
      const double largest = tensor::max(tensor::sum(m, 3), 2).first.item();
      const Tensor m_hat = scaled ? scaled_by_row_sums(m) : m;
      const auto values = eigenvalues(attention::shifted_identity(m_hat, -1, 1));
      const double norm = std::max(std::abs(values.front()), std::abs(values.back()));
      return std::pair(norm, scaled ? 1 - kGamma / largest + kRounding : 1);
    });
  };
}

/// The Nystrom error B - B S (S^T B S)^+ S^T B of d landmarks: [1, 1, 2 n, 2 n].
Tensor nystrom_error(const Tensor& x, std::int64_t d, std::uint64_t seed) {
  const Tensor w = landmarks(x, d, seed);
  const Tensor full = attention::kernel_matrix(Kernel::gaussian, x, x);  // B
  const Tensor a = attention::kernel_matrix(Kernel::gaussian, x, w);     // [1, 1, 2 n, d]
  const Tensor middle =
      attention::symmetric_pseudo_inverse(attention::kernel_matrix(Kernel::gaussian, w, w));
  return tensor::subtract(full,
                          tensor::matmul(tensor::matmul(a, middle), a, Op::none, Op::transpose));
}

/// B~ <= B in Loewner's order: B - B~ is a Schur complement.
std::vector<Trial> loewner_lower(const TheorySizes& sizes, std::uint64_t seed) {
  constexpr double kCutoff = 1e-9;  // the pseudo-inverse drops eigenvalues below 1e-10
  const Tensor x = stacked(sizes, seed);
  const double scale = eigenvalues(attention::kernel_matrix(Kernel::gaussian, x, x)).front();
  return trials_over("d", kLandmarks, [&](std::int64_t d) {
    return std::pair(eigenvalues(nystrom_error(x, d, seed)).back() / scale, -kCutoff);
  });
}

/// B <= B~ + 2 L I and so |C~ - C| <= 2 L with probability 1 - delta, for the smallest L with
///   d >= 8 (2 n max_i l_i(L) + 1/6) ln(2 n / delta),    l(L) = diag(B (B + L I)^-1),
/// d landmarks drawn uniformly. sum_i l_i is the statistical dimension, and 2 n max l_i that over
/// the theorem's beta. (Matrix Bernstein with t = 1/2; constants as in Alaoui and Mahoney 2015,
/// theorem 3. The paper leaves the constant open.)
std::vector<Trial> loewner_upper(const TheorySizes& sizes, std::uint64_t seed) {
  const Tensor x = stacked(sizes, seed);
  const auto rows = static_cast<double>(2 * sizes.n);
  const tensor::SymmetricEigen eigen =
      decomposition(attention::kernel_matrix(Kernel::gaussian, x, x));
  return trials_over("d", kLandmarks, [&](std::int64_t d) {
    const double budget = static_cast<double>(d) / (8 * std::log(rows / kFailure)) - 1.0 / 6;
    const double lambda = ridge_with_leverage(eigen, budget / rows);
    return std::pair(eigenvalues(nystrom_error(x, d, seed)).front(), 2 * lambda);
  });
}

/// The same theorem read the other way: how many times the statistical dimension, at the ridge that
/// the error turned out to be worth, the d landmarks were, and how many the theorem asks for.
std::vector<Trial> landmarks_needed(const TheorySizes& sizes, std::uint64_t seed) {
  const Tensor x = stacked(sizes, seed);
  const auto rows = static_cast<double>(2 * sizes.n);
  const tensor::SymmetricEigen eigen =
      decomposition(attention::kernel_matrix(Kernel::gaussian, x, x));
  return trials_over("d", kLandmarks, [&](std::int64_t d) {
    const double lambda = eigenvalues(nystrom_error(x, d, seed)).front() / 2;
    const std::vector<double> scores = leverage_scores(eigen, lambda);
    const double dimension = std::accumulate(scores.begin(), scores.end(), 0.0);
    const double largest = *std::max_element(scores.begin(), scores.end());
    const double asked = 8 * (rows * largest + 1.0 / 6) * std::log(rows / kFailure);
    return std::pair(static_cast<double>(d) / dimension, asked / dimension);
  });
}

/// |C~ - C| <= largest eigenvalue of B - B~: a block of a positive semidefinite matrix. With no
/// more landmarks than the 2 n rows: where every row is drawn, rounding alone is left to compare.
std::vector<Trial> block_norm(const TheorySizes& sizes, std::uint64_t seed) {
  const Tensor x = stacked(sizes, seed);
  std::vector<std::int64_t> counts;
  std::ranges::copy_if(kLandmarks, std::back_inserter(counts),
                       [&](std::int64_t d) { return d <= 2 * sizes.n; });
  return trials_over("d", counts, [&](std::int64_t d) {
    const Tensor error = nystrom_error(x, d, seed);
    const Tensor block =
        tensor::narrow(tensor::narrow(error, 2, 0, sizes.n), 3, sizes.n, 2 * sizes.n);
    return std::pair(spectral_norm(block), eigenvalues(error).front() * (1 + kRounding));
  });
}

}  // namespace

/// C V = D_Q^(-1/2) A D_K^(-1/2) V with A = exp(Q K^T / sqrt p) and D_Q = diag exp(|q|^2 / sqrt p),
/// against the program's own kernelized attention. `norm_weight` is 1/2 in the paper.
Statement kernelized_identity(double norm_weight) {
  const auto distance = [norm_weight](const TheorySizes& sizes, std::uint64_t seed) {
    const Shape shape{1, 1, sizes.n, sizes.width};
    const auto rows = [&](std::uint64_t which) {
      return theory_rows(sizes.n, sizes, seed, which).reshape(shape);
    };
    const Tensor q = rows(1), k = rows(2), v = rows(3);
    const double scale = 1 / std::sqrt(static_cast<double>(sizes.width));
    const auto factor = [&](const Tensor& x, const Shape& as) {  // exp(-weight |x|^2 / sqrt p)
      const Tensor norms = tensor::affine(tensor::row_dot(x, x), -norm_weight * scale);
      return tensor::unary(tensor::Unary::exp, norms).reshape(as);
    };
    const Tensor a = tensor::unary(
        tensor::Unary::exp, tensor::affine(tensor::matmul(q, k, Op::none, Op::transpose), scale));
    const Tensor c = tensor::multiply(tensor::multiply(a, factor(q, {1, 1, sizes.n, 1})),
                                      factor(k, {1, 1, 1, sizes.n}));
    const Tensor mask = Tensor::full({1, sizes.n}, 1, DType::f64, Device::cpu);
    const Tensor out = exact_output("kernelized", {q, k, v, mask});  // [1, 1, n, p]
    const Tensor expected = tensor::matmul(c, v);
    return std::vector<Trial>{
        {"", frobenius(tensor::subtract(out, expected)) / frobenius(expected), kRounding}};
  };
  return {"kernelized-identity",
          "Skyformer, eq. 4",
          "kernelized attention = D_Q^(-1/2) exp(Q K^T / sqrt p) D_K^(-1/2) V",
          "relative Frobenius distance",
          Relation::at_most,
          true,
          0,
          distance};
}

std::vector<Statement> kernel_statements() {
  return {
      {"kernel-psd", "Skyformer, Lemma 1",
       "the kernel matrices of all queries and keys are positive semidefinite",
       "smallest eigenvalue over the largest", Relation::at_least, true, 0, psd},
      {"attention-psd", "Skyformer, sec. 4.2", "softmax(Q K^T) alone is positive semidefinite",
       "smallest eigenvalue of its symmetric part over the largest", Relation::at_least, false, 0,
       attention_psd},
      kernelized_identity(0.5),
      {"preconditioning", "Skyformer, Lemma 3", "|I - M^| <= 1 - gamma / largest row sum < 1",
       "spectral norm of I - M^", Relation::at_most, true, 0, preconditioned(true)},
      {"no-preconditioning", "Skyformer, Lemma 3", "|I - M| < 1 without the scaling",
       "spectral norm of I - M", Relation::at_most, false, 0, preconditioned(false)},
      {"loewner-lower", "Skyformer, Theorem 2", "B~ <= B in Loewner's order",
       "smallest eigenvalue of B - B~ over the largest of B", Relation::at_least, true, 0,
       loewner_lower},
      {"loewner-upper", "Skyformer, Theorem 2",
       "B <= B~ + 2 L I with probability 0.9, L the ridge whose leverage d allows",
       "largest eigenvalue of B - B~", Relation::at_most, true, kFailure, loewner_upper},
      {"landmarks-needed", "Skyformer, Theorem 2",
       "d landmarks need not be more than the theorem asks for, with probability 0.9",
       "d over the statistical dimension at half the error", Relation::at_most, true, kFailure,
       landmarks_needed},
      {"block-norm", "Skyformer, Theorem 2", "|C~ - C| <= largest eigenvalue of B - B~",
       "spectral norm of C~ - C", Relation::at_most, true, 0, block_norm},
  };
}

}  // namespace skytape::train
