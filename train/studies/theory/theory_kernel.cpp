// Skyformer (Chen et al. 2021): kernel matrices of queries and keys, and what the Nystrom method
// makes of them.
//
// Letters: n queries and keys, p head width, X = [Q; K] p^(-1/4) the 2 n stacked rows, d landmarks,
// k(x, y) = exp(-|x - y|^2 / 2) the Gaussian kernel, e(x, y) = exp(x.y) that of softmax, B the
// completed matrix k(X, X) and C = k(Q, K) its upper right block.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "attention/feature_maps/gaussian_kernel.hpp"
#include "attention/inverse/iterative_inverse.hpp"
#include "attention/inverse/pseudo_inverse.hpp"
#include "attention/registry.hpp"
#include "attention/sampling/landmarks.hpp"
#include "tensor/gemm/gemm.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/kernels/reduce.hpp"
#include "tensor/movement/layout.hpp"
#include "tensor/norm/softmax.hpp"
#include "train/studies/theory/theory.hpp"
#include "train/studies/theory/theory_parts.hpp"

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

/// M^ = D^(-1/2) (k(W, W) + gamma I) D^(-1/2), D the row sums: |I - M^| <= 1 - gamma / max D < 1.
/// Its eigenvalues are those of a matrix with rows that sum to one, hence at most 1, and at least
/// those of M, hence gamma, over the largest row sum.
std::vector<Trial> preconditioned(const TheorySizes& sizes, std::uint64_t seed, bool scaled) {
  constexpr double kGamma = 0.1;
  const Tensor x = stacked(sizes, seed);
  std::vector<Trial> trials;
  for (const std::int64_t d : {std::int64_t{16}, std::int64_t{64}, std::int64_t{128}}) {
    const Tensor w = landmarks(x, d, seed);
    const Tensor m = attention::shifted_identity(attention::kernel_matrix(Kernel::gaussian, w, w),
                                                 1, kGamma);  // [1, 1, d, d]
    const Tensor sums = tensor::sum(m, 3);                    // [1, 1, d]
    const double largest = tensor::max(sums, 2).first.item();
    const Tensor r =
        tensor::unary(tensor::Unary::reciprocal, tensor::unary(tensor::Unary::sqrt, sums));
    const Tensor rows = r.reshape({1, 1, d, 1}), columns = r.reshape({1, 1, 1, d});
    const Tensor m_hat = scaled ? tensor::multiply(tensor::multiply(m, rows), columns) : m;
    const auto values = eigenvalues(attention::shifted_identity(m_hat, -1, 1));
    const double norm = std::max(std::abs(values.front()), std::abs(values.back()));
    trials.push_back(
        {fmt::format("d = {}", d), norm, scaled ? 1 - kGamma / largest + kRounding : 1});
  }
  return trials;
}

/// The completed matrix, its eigenvalues and the Nystrom error of several numbers of landmarks.
struct Nystrom {
  Tensor full;   // B: [1, 1, 2 n, 2 n]
  Tensor error;  // B - B S (S^T B S)^+ S^T B
};
Nystrom nystrom(const Tensor& x, std::int64_t d, std::uint64_t seed) {
  const Tensor w = landmarks(x, d, seed);
  const Tensor full = attention::kernel_matrix(Kernel::gaussian, x, x);
  const Tensor a = attention::kernel_matrix(Kernel::gaussian, x, w);  // [1, 1, 2 n, d]
  const Tensor middle =
      attention::symmetric_pseudo_inverse(attention::kernel_matrix(Kernel::gaussian, w, w));
  const Tensor rebuilt =
      tensor::matmul(tensor::matmul(a, middle), a, Op::none, Op::transpose);  // [1, 1, 2 n, 2 n]
  return {full, tensor::subtract(full, rebuilt)};
}

constexpr std::array<std::int64_t, 4> kLandmarks = {16, 32, 64, 128};

/// B~ <= B in Loewner's order: B - B~ is a Schur complement.
std::vector<Trial> loewner_lower(const TheorySizes& sizes, std::uint64_t seed) {
  constexpr double kCutoff = 1e-9;  // the pseudo-inverse drops eigenvalues below 1e-10
  const Tensor x = stacked(sizes, seed);
  std::vector<Trial> trials;
  for (const std::int64_t d : kLandmarks) {
    const Nystrom b = nystrom(x, d, seed);
    const double scale = eigenvalues(b.full).front();
    trials.push_back({fmt::format("d = {}", d), eigenvalues(b.error).back() / scale, -kCutoff});
  }
  return trials;
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
  std::vector<Trial> trials;
  for (const std::int64_t d : kLandmarks) {
    const double budget = static_cast<double>(d) / (8 * std::log(rows / kFailure)) - 1.0 / 6;
    const double lambda = ridge_with_leverage(eigen, budget / rows);
    const double measured = eigenvalues(nystrom(x, d, seed).error).front();
    trials.push_back({fmt::format("d = {}", d), measured, 2 * lambda});
  }
  return trials;
}

/// The same theorem read the other way: how many times the statistical dimension, at the ridge that
/// the error turned out to be worth, the d landmarks were, and how many the theorem asks for.
std::vector<Trial> landmarks_needed(const TheorySizes& sizes, std::uint64_t seed) {
  const Tensor x = stacked(sizes, seed);
  const auto rows = static_cast<double>(2 * sizes.n);
  const tensor::SymmetricEigen eigen =
      decomposition(attention::kernel_matrix(Kernel::gaussian, x, x));
  std::vector<Trial> trials;
  for (const std::int64_t d : kLandmarks) {
    const double lambda = eigenvalues(nystrom(x, d, seed).error).front() / 2;
    const std::vector<double> scores = leverage_scores(eigen, lambda);
    const double dimension = std::accumulate(scores.begin(), scores.end(), 0.0);
    const double largest = *std::max_element(scores.begin(), scores.end());
    const double asked = 8 * (rows * largest + 1.0 / 6) * std::log(rows / kFailure);
    trials.push_back(
        {fmt::format("d = {}", d), static_cast<double>(d) / dimension, asked / dimension});
  }
  return trials;
}

/// |C~ - C| <= largest eigenvalue of B - B~: a block of a positive semidefinite matrix.
std::vector<Trial> block_norm(const TheorySizes& sizes, std::uint64_t seed) {
  const Tensor x = stacked(sizes, seed);
  std::vector<Trial> trials;
  for (const std::int64_t d : kLandmarks) {
    const Tensor error = nystrom(x, d, seed).error;
    const Tensor block =
        tensor::narrow(tensor::narrow(error, 2, 0, sizes.n), 3, sizes.n, 2 * sizes.n);
    trials.push_back({fmt::format("d = {}", d), spectral_norm(block),
                      eigenvalues(error).front() * (1 + kRounding)});
  }
  return trials;
}

}  // namespace

/// C V = D_Q^(-1/2) A D_K^(-1/2) V with A = exp(Q K^T / sqrt p) and D_Q = diag exp(|q|^2 / sqrt p),
/// against the program's own kernelized attention. `norm_weight` is 1/2 in the paper.
Statement kernelized_identity(double norm_weight) {
  Statement s;
  s.name = "kernelized-identity";
  s.reference = "Skyformer, eq. 4";
  s.says = "kernelized attention = D_Q^(-1/2) exp(Q K^T / sqrt p) D_K^(-1/2) V";
  s.measured = "relative Frobenius distance";
  s.try_once = [norm_weight](const TheorySizes& sizes, std::uint64_t seed) {
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
    const auto method =
        attention::find("kernelized")
            .make({0, 1, sizes.width, sizes.n, "", nullptr}, {{"attention_dropout", "0"}});
    const Tensor mask = Tensor::full({1, sizes.n}, 1, DType::f64, Device::cpu);
    const Tensor out = method->forward({q, k, v, mask}, {}, {}).out;  // [1, 1, n, p]
    const Tensor expected = tensor::matmul(c, v);
    return std::vector<Trial>{
        {"", frobenius(tensor::subtract(out, expected)) / frobenius(expected), kRounding}};
  };
  return s;
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
       "spectral norm of I - M^", Relation::at_most, true, 0,
       [](const TheorySizes& sizes, std::uint64_t seed) {
         return preconditioned(sizes, seed, true);
       }},
      {"no-preconditioning", "Skyformer, Lemma 3", "|I - M| < 1 without the scaling",
       "spectral norm of I - M", Relation::at_most, false, 0,
       [](const TheorySizes& sizes, std::uint64_t seed) {
         return preconditioned(sizes, seed, false);
       }},
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
