// Linformer (Wang et al. 2020), Theorems 1 and 2: a random projection along the sequence, and how
// many of its rows the Johnson-Lindenstrauss argument asks for.
//
// Notation: n positions, p the head width, R a k x n matrix of N(0, 1/k), P = softmax(Q K^T / sqrt
// p), w a column of the values V. P R^T R w stands for P w, and softmax(x E^T) F V for softmax(x)
// V, x a row of Q K^T / sqrt p, E = delta R, F = e^-delta R.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tensor/gemm/gemm.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/movement/layout.hpp"
#include "tensor/norm/softmax.hpp"
#include "train/lab/studies/exact_attention.hpp"
#include "train/lab/studies/theory/theory_parts.hpp"

namespace skytape::train {
namespace {

constexpr double kEpsilon = 0.5;  // the theorem's epsilon
constexpr double kGap = kEpsilon * kEpsilon - kEpsilon * kEpsilon * kEpsilon;
constexpr std::int64_t kVectors = 1000;  // independent vectors, or pairs, for one seed

/// k of Theorem 1: 5 ln n / (e^2 - e^3).
double rows_of_theorem(std::int64_t n) { return 5 * std::log(static_cast<double>(n)) / kGap; }

/// R^T: [n, k].
Tensor projection(std::int64_t n, std::int64_t k, const TheorySizes& sizes, std::uint64_t seed) {
  TheorySizes spread = sizes;
  spread.deviation = 1 / std::sqrt(static_cast<double>(k));
  return theory_numbers({n, k}, spread, seed, 9);
}

double dot(const double* a, const double* b, std::int64_t size) {
  double sum = 0;
  for (std::int64_t i = 0; i < size; ++i) sum += a[i] * b[i];
  return sum;
}

/// Returns the permitted error of a product x y, over epsilon, from x x, y y and x y.
using Limit = double (*)(double xx, double yy, double xy);
double by_norms(double xx, double yy, double) { return std::sqrt(xx * yy); }
double by_product(double, double, double xy) { return std::abs(xy); }

/// Share of rows i of a, b [m, n] whose products' difference |x R^T R y - x y| is more than
/// epsilon limit(x, y).
double share_beyond(const Tensor& a, const Tensor& b, const Tensor& r, Limit limit) {
  const Tensor ra = tensor::matmul(a, r), rb = tensor::matmul(b, r);  // [m, k]
  const std::int64_t rows = a.size(0), n = a.size(1), k = r.size(1);
  std::int64_t beyond = 0;
  for (std::int64_t i = 0; i < rows; ++i) {
    const double *x = a.data<double>() + i * n, *y = b.data<double>() + i * n;
    const double exact = dot(x, y, n);
    const double sketched = dot(ra.data<double>() + i * k, rb.data<double>() + i * k, k);
    const double most = kEpsilon * limit(dot(x, x, n), dot(y, y, n), exact);
    beyond += std::abs(sketched - exact) > most ? 1 : 0;
  }
  return static_cast<double>(beyond) / static_cast<double>(rows);
}

/// Each row of the tests below takes its own R, so that failures are independent: rows are cut into
/// blocks of kBlock, and R is drawn anew for each.
constexpr std::int64_t kBlock = 10;
double failure_rate(const Tensor& a, const Tensor& b, std::int64_t k, const TheorySizes& sizes,
                    std::uint64_t seed, Limit limit) {
  const std::int64_t blocks = a.size(0) / kBlock;
  double share = 0;
  for (std::int64_t i = 0; i < blocks; ++i) {
    const Tensor r =
        projection(a.size(1), k, sizes, seed * 1000003 + static_cast<std::uint64_t>(i));
    share += share_beyond(a.slice(i * kBlock, (i + 1) * kBlock),
                          b.slice(i * kBlock, (i + 1) * kBlock), r, limit);
  }
  return share / static_cast<double>(blocks);
}

Tensor vectors(const TheorySizes& sizes, std::uint64_t seed, std::uint64_t which) {
  return theory_numbers({kVectors, sizes.n}, sizes, seed, which);
}

constexpr std::int64_t kRows[] = {64, 128, 256};

/// P(| |R x|^2 - |x|^2 | > e |x|^2) <= 2 exp(-(e^2 - e^3) k / 4).
std::vector<Trial> norms(const TheorySizes& sizes, std::uint64_t seed) {
  const Tensor x = vectors(sizes, seed, 1);
  return trials_over("k", kRows, [&](std::int64_t k) {
    return std::pair(failure_rate(x, x, k, sizes, seed, by_norms),
                     2 * std::exp(-kGap * static_cast<double>(k) / 4));
  });
}

/// P(|x R^T R y - x y| > e |x| |y|) <= 4 exp(-(e^2 - e^3) k / 4), from the norms of x + y and x -
/// y. And with by_product e |x y| in place of e |x| |y|, as Linformer's proof has it: no such bound
/// exists, since x y may be zero.
auto products(Limit limit) {
  return [limit](const TheorySizes& sizes, std::uint64_t seed) {
    const Tensor x = vectors(sizes, seed, 1), y = vectors(sizes, seed, 2);
    return trials_over("k", kRows, [&](std::int64_t k) {
      const double bound = std::min(1.0, 4 * std::exp(-kGap * static_cast<double>(k) / 4));
      return std::pair(failure_rate(x, y, k, sizes, seed, limit), bound);
    });
  };
}

/// w, what P is multiplied by: [n, 1].
Tensor value_column(const TheorySizes& sizes, std::int64_t n, std::uint64_t seed) {
  if (!sizes.real) return theory_numbers({n, 1}, sizes, seed, 3);
  return tensor::narrow(theory_rows(n, sizes, seed, 3), 1, 0, 1);
}

/// Theorem 1's k rows: |P R^T R w - P w| <= e |P w|, as printed, or <= e |P|_F |w|, what the rows'
/// products give. The left side over the norm on the right, so that the bound is e.
auto matrix_error(bool relative) {
  return [relative](const TheorySizes& sizes, std::uint64_t seed) {
    const Tensor p = attention_of(sizes, sizes.n, seed);
    const Tensor w = value_column(sizes, sizes.n, seed);
    const auto k = static_cast<std::int64_t>(std::ceil(rows_of_theorem(sizes.n)));
    const Tensor r = projection(sizes.n, k, sizes, seed);
    const Tensor exact = tensor::matmul(p, w);  // [n, 1]
    const Tensor sketched =
        tensor::matmul(tensor::matmul(p, r), tensor::matmul(r, w, Op::transpose));
    const double error = frobenius(tensor::subtract(sketched, exact));
    const double scale = relative ? frobenius(exact) : frobenius(p) * frobenius(w);
    return std::vector<Trial>{{fmt::format("k = {}", k), error / scale, kEpsilon}};
  };
}

/// Smallest k from which on every row of P keeps |P_i R^T R w - P_i w| <= e |P_i| |w|, against
/// 5 ln n / (e^2 - e^3).
std::vector<Trial> rank_needed(const TheorySizes& sizes, std::uint64_t seed) {
  std::vector<Trial> trials;
  for (const std::int64_t n : {std::int64_t{64}, std::int64_t{128}, std::int64_t{256}}) {
    if (sizes.real && n > sizes.n) break;
    const Tensor p = attention_of(sizes, n, seed);
    const Tensor w = value_column(sizes, n, seed);
    const auto most = static_cast<std::int64_t>(std::ceil(rows_of_theorem(n)));
    const Tensor r = projection(n, most, sizes, seed);
    const Tensor pr = tensor::matmul(p, r), rw = tensor::matmul(r, w, Op::transpose);
    const Tensor exact = tensor::matmul(p, w);
    const double w_norm = frobenius(w);
    double needed = 1;
    for (std::int64_t i = 0; i < n; ++i) {
      const double* row = p.data<double>() + i * n;
      const double limit = kEpsilon * std::sqrt(dot(row, row, n)) * w_norm;
      double sum = 0;  // of k rows, in units of R with `most` of them
      for (std::int64_t k = 1; k <= most; ++k) {
        sum += pr.data<double>()[i * most + k - 1] * rw.data<double>()[k - 1];
        const double estimate = sum * static_cast<double>(most) / static_cast<double>(k);
        if (std::abs(estimate - exact.data<double>()[i]) > limit) {
          needed = std::max(needed, static_cast<double>(k + 1));
        }
      }
    }
    trials.push_back({fmt::format("n = {}", n), needed, rows_of_theorem(n)});
  }
  return trials;
}

/// k of Theorem 2, its constants taken as one: min(9 p ln p, 5 ln n) / (e^2 - e^3).
std::int64_t rows_of_theorem_2(const TheorySizes& sizes) {
  const auto p = static_cast<double>(sizes.width);
  const double by_width = p > 1 ? 9 * p * std::log(p) / kGap : rows_of_theorem(sizes.n);
  return static_cast<std::int64_t>(std::ceil(std::min(by_width, rows_of_theorem(sizes.n))));
}

/// The matrices of Theorem 2, with the E and F of its proof and delta = 1/n.
struct Projected {
  Tensor logits;     // Q K^T / sqrt p: [n, n]
  Tensor values;     // V, or ones in its place: [n, p]
  Tensor sketched;   // logits E^T: [n, k]
  Tensor projected;  // F V: [k, p]
};
Projected project(const TheorySizes& sizes, std::uint64_t seed, bool equal_values) {
  const std::int64_t n = sizes.n;
  const double delta = 1 / static_cast<double>(n);
  const Tensor r = projection(n, rows_of_theorem_2(sizes), sizes, seed);  // [n, k]
  const Tensor logits =
      tensor::affine(tensor::matmul(theory_rows(n, sizes, seed, 1), theory_rows(n, sizes, seed, 2),
                                    Op::none, Op::transpose),
                     1 / std::sqrt(static_cast<double>(sizes.width)));
  const Tensor values = equal_values ? Tensor::full({n, sizes.width}, 1, DType::f64, Device::cpu)
                                     : theory_rows(n, sizes, seed, 3);
  return {logits, values, tensor::affine(tensor::matmul(logits, r), delta),
          tensor::affine(tensor::matmul(r, values, Op::transpose), std::exp(-delta))};
}

/// |difference of row i| of two matrices, over the norm of row i of `weights` and that of `values`:
/// the largest of all rows.
double largest_row_error(const Tensor& ours, const Tensor& exact, const Tensor& weights,
                         const Tensor& values) {
  const Tensor difference = tensor::subtract(ours, exact);
  double largest = 0;
  for (std::int64_t i = 0; i < exact.size(0); ++i) {
    largest = std::max(largest, frobenius(difference.slice(i, i + 1)) /
                                    (frobenius(weights.slice(i, i + 1)) * frobenius(values)));
  }
  return largest;
}

/// Theorem 2: |softmax(x E^T) F V - softmax(x) V| <= e |softmax(x)| |V|_F for every row x. And what
/// zeros in the place of the left product are off by.
auto linear_attention_error(bool equal_values) {
  return [equal_values](const TheorySizes& sizes, std::uint64_t seed) {
    const Projected s = project(sizes, seed, equal_values);
    const Tensor weights = tensor::softmax(s.logits);
    const Tensor ours = tensor::matmul(tensor::softmax(s.sketched), s.projected);
    const Tensor exact = tensor::matmul(weights, s.values);
    const auto error = [&](const Tensor& x) {
      return largest_row_error(x, exact, weights, s.values);
    };
    return std::vector<Trial>{
        {fmt::format("k = {}", s.sketched.size(1)), error(ours), kEpsilon},
        {"zeros", error(Tensor::zeros(exact.shape(), DType::f64, Device::cpu)), kEpsilon}};
  };
}

/// Its proof's step without the normalisation: |exp(x E^T) F w - exp(x) w| <= e |exp(x)| |w|.
std::vector<Trial> exponential_error(const TheorySizes& sizes, std::uint64_t seed) {
  const Projected s = project(sizes, seed, false);
  const Tensor w = tensor::narrow(s.values, 1, 0, 1), fw = tensor::narrow(s.projected, 1, 0, 1);
  const Tensor weights = tensor::unary(tensor::Unary::exp, s.logits);
  const Tensor ours = tensor::matmul(tensor::unary(tensor::Unary::exp, s.sketched), fw);
  const double error = largest_row_error(ours, tensor::matmul(weights, w), weights, w);
  return {{fmt::format("k = {}", s.sketched.size(1)), error, kEpsilon}};
}

/// Measures the error that the proof neglects: |exp(x E^T) - exp(x) R^T| over |exp(x)|, the largest
/// of all rows.
std::vector<Trial> exponential_exchange(const TheorySizes& sizes, std::uint64_t seed) {
  const Projected s = project(sizes, seed, false);
  const Tensor r = projection(sizes.n, s.sketched.size(1), sizes, seed);
  const Tensor weights = tensor::unary(tensor::Unary::exp, s.logits);
  const Tensor one = Tensor::full({1, 1}, 1, DType::f64, Device::cpu);
  const double error = largest_row_error(tensor::unary(tensor::Unary::exp, s.sketched),
                                         tensor::matmul(weights, r), weights, one);
  return {{fmt::format("k = {}", s.sketched.size(1)), error, kEpsilon}};
}

}  // namespace

std::vector<Statement> projection_statements() {
  return {
      {"jl-norm", "Linformer, Theorem 1 (its lemma)",
       "P(||R x|^2 - |x|^2| > e |x|^2) <= 2 exp(-(e^2 - e^3) k / 4), e = 1/2",
       "share of 1000 vectors", Relation::at_most, true, 0, norms},
      {"jl-product", "Linformer, Theorem 1 (its lemma)",
       "P(|x R^T R y - x y| > e |x| |y|) <= 4 exp(-(e^2 - e^3) k / 4), e = 1/2",
       "share of 1000 pairs", Relation::at_most, true, 0, products(by_norms)},
      {"jl-relative", "Linformer, proof of Theorem 1",
       "the same with e |x y| in place of e |x| |y|, as the proof has it", "share of 1000 pairs",
       Relation::at_most, false, 0, products(by_product)},
      {"theorem-1", "Linformer, Theorem 1",
       "|P R^T R w - P w| <= e |P|_F |w| for k = 5 ln n / (e^2 - e^3)", "left side over |P|_F |w|",
       Relation::at_most, true, 0, matrix_error(false)},
      {"theorem-1-relative", "Linformer, Theorem 1", "|P R^T R w - P w| <= e |P w|, as printed",
       "left side over |P w|", Relation::at_most, false, 0, matrix_error(true)},
      {"rank-needed", "Linformer, Theorem 1",
       "k = 5 ln n / (e^2 - e^3) rows keep every row of P w within e |P_i| |w|",
       "fewest rows that do", Relation::at_most, true, 0.1, rank_needed},
      {"theorem-2", "Linformer, Theorem 2",
       "|softmax(x E^T) F V - softmax(x) V| <= e |softmax(x)| |V|_F for the rows x of Q K^T / sqrt "
       "p, "
       "E = delta R, F = e^-delta R, delta = 1 / n, k = min(9 p ln p, 5 ln n) / (e^2 - e^3)",
       "largest left side over |softmax(x)| |V|_F", Relation::at_most, false, 0,
       linear_attention_error(false)},
      {"theorem-2-equal-values", "Linformer, Theorem 2",
       "the same where all values are 1, so that exact attention gives 1",
       "largest left side over |softmax(x)| |V|_F", Relation::at_most, false, 0,
       linear_attention_error(true)},
      {"theorem-2-exp", "Linformer, proof of Theorem 2",
       "|exp(x E^T) F w - exp(x) w| <= e |exp(x)| |w|", "largest left side over |exp(x)| |w|",
       Relation::at_most, false, 0, exponential_error},
      {"theorem-2-exchange", "Linformer, proof of Theorem 2",
       "|exp(x E^T) - exp(x) R^T| is small against |exp(x)|, as the proof takes it to be: within e",
       "largest left side over |exp(x)|", Relation::at_most, false, 0, exponential_exchange},
  };
}

}  // namespace skytape::train
