// Skeinformer (Chen et al. 2022): products through sampled columns.
//
// Notation: n rows and columns, B = softmax(Q K^T / sqrt p) the attention matrix, B^(i) its
// columns, V_(i) the rows of V, S the n x d matrix whose column j is e_i / sqrt(d p_i) for the
// index i drawn j-th with probabilities p (with replacement), so that B S S^T V stands for B V.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "attention/sampling/sampling.hpp"
#include "tensor/gemm/gemm.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "train/lab/studies/exact_attention.hpp"
#include "train/lab/studies/experiment.hpp"
#include "train/lab/studies/theory/theory_parts.hpp"

namespace skytape::train {
namespace {

constexpr std::int64_t kDraws = 400;             // independent S for one seed
constexpr std::int64_t kPilotsAtOnce = 1 << 20;  // drawn into one array
constexpr double kDeviations = 5;                // standard errors that a mean may be off
constexpr double kFailure = 0.1;                 // delta of statements that hold with a probability
constexpr double kBetas[] = {1, 0.5, 0.2};       // how near probabilities are to the paper's

/// B, V, and the norms that columns are drawn by.
struct Attention {
  std::int64_t n = 0, p = 0;
  Tensor product;                     // B V: [n, p]
  std::vector<double> b, v;           // row-major
  std::vector<double> column_norms;   // |B^(i)|
  std::vector<double> value_norms;    // |V_(i)|
  std::vector<double> probabilities;  // in proportion to |B^(i)| |V_(i)|
  double weight = 0;                  // sum of |B^(i)| |V_(i)|
};

Attention make_attention(const TheorySizes& sizes, std::uint64_t seed) {
  const Tensor b = attention_of(sizes, sizes.n, seed), v = theory_rows(sizes.n, sizes, seed, 3);
  Attention a{sizes.n, sizes.width, tensor::matmul(b, v), b.to_vector(), v.to_vector(), {}, {}, {},
              0};
  const auto n = static_cast<std::size_t>(sizes.n), p = static_cast<std::size_t>(sizes.width);
  for (std::size_t i = 0; i < n; ++i) {
    double column = 0, row = 0;
    for (std::size_t j = 0; j < n; ++j) column += a.b[j * n + i] * a.b[j * n + i];
    for (std::size_t c = 0; c < p; ++c) row += a.v[i * p + c] * a.v[i * p + c];
    a.column_norms.push_back(std::sqrt(column));
    a.value_norms.push_back(std::sqrt(row));
    a.weight += std::sqrt(column * row);
  }
  for (std::size_t i = 0; i < n; ++i) {
    a.probabilities.push_back(a.column_norms[i] * a.value_norms[i] / a.weight);
  }
  return a;
}

/// `count` rows of `d` indices drawn with the program's own sampler.
std::vector<double> draw(const std::vector<double>& probabilities, std::int64_t count,
                         std::int64_t d, std::uint64_t seed) {
  const auto n = static_cast<std::int64_t>(probabilities.size());
  std::vector<double> rows;
  for (std::int64_t r = 0; r < count; ++r) {
    rows.insert(rows.end(), probabilities.begin(), probabilities.end());
  }
  const Tensor weights = Tensor::from(rows, {count, n}, DType::f64, Device::cpu);
  const attention::RowNumbers numbers{Random{seed, {}}, 0, d};
  return attention::sample_with_replacement(weights, d, numbers).to_vector();
}

/// |B V - B S S^T V|_F^2 for each row of d indices.
std::vector<double> squared_errors(const Attention& a, const std::vector<double>& probabilities,
                                   std::int64_t d, std::uint64_t seed) {
  const std::vector<double> drawn = draw(probabilities, kDraws, d, seed);
  const auto n = static_cast<std::size_t>(a.n), p = static_cast<std::size_t>(a.p);
  std::vector<double> errors;
  for (std::size_t t = 0; t < static_cast<std::size_t>(kDraws); ++t) {
    std::vector<double> columns(n * static_cast<std::size_t>(d)), rows;  // B S S^T and V, gathered
    for (std::size_t j = 0; j < static_cast<std::size_t>(d); ++j) {
      const auto i = static_cast<std::size_t>(drawn[t * static_cast<std::size_t>(d) + j]);
      const double factor = 1 / (static_cast<double>(d) * probabilities[i]);
      for (std::size_t r = 0; r < n; ++r) {
        columns[r * static_cast<std::size_t>(d) + j] = a.b[r * n + i] * factor;
      }
      rows.insert(rows.end(), a.v.begin() + static_cast<std::ptrdiff_t>(i * p),
                  a.v.begin() + static_cast<std::ptrdiff_t>((i + 1) * p));
    }
    const Tensor estimate = tensor::matmul(Tensor::from(columns, {a.n, d}, DType::f64, Device::cpu),
                                           Tensor::from(rows, {d, a.p}, DType::f64, Device::cpu));
    const double error = frobenius(tensor::subtract(estimate, a.product));
    errors.push_back(error * error);
  }
  return errors;
}

constexpr std::int64_t kColumns[] = {16, 32, 64};

/// E(S S^T) = I. Its i-th diagonal entry is the count of i over d p_i, whose variance for one S is
/// (1 - p_i) / (d p_i); all others are zero.
std::vector<Trial> unbiased(const TheorySizes& sizes, std::uint64_t seed) {
  const Attention a = make_attention(sizes, seed);
  return trials_over("d", kColumns, [&](std::int64_t d) {
    std::vector<double> counts(static_cast<std::size_t>(a.n));
    for (const double i : draw(a.probabilities, kDraws, d, seed)) {
      ++counts[static_cast<std::size_t>(i)];
    }
    double worst = 0;
    const auto drawn = static_cast<double>(d * kDraws);
    for (std::size_t i = 0; i < counts.size(); ++i) {
      const double p = a.probabilities[i];
      const double error = std::sqrt((1 - p) / (drawn * p));
      worst = std::max(worst, std::abs(counts[i] / (drawn * p) - 1) / error);
    }
    return std::pair(worst, kDeviations);
  });
}

/// Probabilities that are nowhere below beta times the paper's: what is left over goes to the index
/// that the paper's give least.
std::vector<double> at_least(const Attention& a, double beta) {
  std::vector<double> p = a.probabilities;
  for (double& x : p) x *= beta;
  const auto least = std::min_element(p.begin(), p.end());
  *least += 1 - beta;
  return p;
}

/// Proposition 1: with p_i >= beta |B^(i)| |V_(i)| / sum, with probability 1 - delta
///   |B V - B S S^T V|_F^2 <= eta^2 / (beta d) |B|_F^2 |V|_F^2,
///   eta = 1 + sqrt(8/beta ln(1/delta)).
/// Share of the draws that break it.
std::vector<Trial> frobenius_bound(const TheorySizes& sizes, std::uint64_t seed) {
  const Attention a = make_attention(sizes, seed);
  const auto squared = [](const std::vector<double>& norms) {
    return std::inner_product(norms.begin(), norms.end(), norms.begin(), 0.0);
  };
  std::vector<Trial> trials;
  for (const double beta : kBetas) {
    const std::vector<double> probabilities = at_least(a, beta);
    const double eta = 1 + std::sqrt(8 / beta * std::log(1 / kFailure));
    for (const std::int64_t d : kColumns) {
      const double bound = eta * eta / (beta * static_cast<double>(d)) * squared(a.column_norms) *
                           squared(a.value_norms);
      const std::vector<double> errors = squared_errors(a, probabilities, d, seed);
      const auto broken =
          std::count_if(errors.begin(), errors.end(), [&](double error) { return error > bound; });
      trials.push_back({fmt::format("d = {}, beta = {}", d, beta),
                        static_cast<double>(broken) / static_cast<double>(kDraws), kFailure});
    }
  }
  return trials;
}

/// Uniform probabilities for comparison with those of the paper: their expected error is never
/// smaller (Cauchy and Schwarz).
std::vector<Trial> better_than_uniform(const TheorySizes& sizes, std::uint64_t seed) {
  const Attention a = make_attention(sizes, seed);
  double uniform = 0;
  for (std::size_t i = 0; i < a.column_norms.size(); ++i) {
    uniform += std::pow(a.column_norms[i] * a.value_norms[i], 2);
  }
  return {{"", a.weight * a.weight / (uniform * static_cast<double>(a.n)), 1}};
}

/// The ratios of estimated probabilities to the paper's.
struct Ratios {
  double smallest = 0, largest = 0;  // of p^_i / p_i
};

/// p^ estimated from d pilot rows, drawn uniformly with repetition: p^_i in proportion to
/// (sum_k b_{j_k, i}^2)^(1/2) |V_(i)|.
Ratios pilot_ratios(const Attention& a, std::int64_t d, std::uint64_t seed) {
  const auto n = static_cast<std::size_t>(a.n);
  const std::vector<double> uniform(n, 1.0);
  std::vector<double> times(n), estimate(n);  // how often a row is a pilot
  for (std::int64_t drawn = 0; drawn < d; drawn += kPilotsAtOnce) {
    const std::int64_t count = std::min(kPilotsAtOnce, d - drawn);
    for (const double row :
         draw(uniform, 1, count, seed + 1000003 * static_cast<std::uint64_t>(drawn))) {
      ++times[static_cast<std::size_t>(row)];
    }
  }
  for (std::size_t j = 0; j < n; ++j) {
    for (std::size_t i = 0; i < n; ++i) estimate[i] += times[j] * std::pow(a.b[j * n + i], 2);
  }
  for (std::size_t i = 0; i < n; ++i) estimate[i] = std::sqrt(estimate[i]) * a.value_norms[i];
  const double total = std::accumulate(estimate.begin(), estimate.end(), 0.0);
  Ratios ratios{1e300, 0};
  for (std::size_t i = 0; i < n; ++i) {
    const double ratio = estimate[i] / total / a.probabilities[i];
    ratios = {std::min(ratios.smallest, ratio), std::max(ratios.largest, ratio)};
  }
  return ratios;
}

/// C of Lemma 1: the least mean over a column of b_ji^2 divided by the largest of them.
double column_evenness(const Attention& a) {
  const auto n = static_cast<std::size_t>(a.n);
  double least = 1;
  for (std::size_t i = 0; i < n; ++i) {
    double largest = 0;
    for (std::size_t j = 0; j < n; ++j) largest = std::max(largest, a.b[j * n + i]);
    least = std::min(least, std::pow(a.column_norms[i] / largest, 2) / static_cast<double>(n));
  }
  return least;
}

/// ln(2 n / delta): each of 2 n tails has its part of delta.
double tails(const Attention& a) { return std::log(2 * static_cast<double>(a.n) / kFailure); }

/// Pilot rows after which every column's squared norm is estimated within half of itself, with
/// probability 1 - delta, by Chernoff's inequality. All p^_i are then at least p_i / sqrt 3, and at
/// most sqrt 3 p_i.
std::int64_t fewer_pilots(const Attention& a) {
  return static_cast<std::int64_t>(std::ceil(10 / column_evenness(a) * tails(a)));
}

/// Returns the bound by Hoeffding's inequality, as Lemma 1 prints it.
std::int64_t pilots_of_lemma(const Attention& a) {
  return static_cast<std::int64_t>(std::ceil(2 / std::pow(column_evenness(a), 2) * tails(a)));
}

constexpr double kFactor = 1.7320508075688772;  // sqrt 3, of Lemma 1

std::vector<Trial> pilot_lemma(const TheorySizes& sizes, std::uint64_t seed) {
  const Attention a = make_attention(sizes, seed);
  const Ratios ratios = pilot_ratios(a, pilots_of_lemma(a), seed);
  return {{"d = 2 / C^2 ln(2 n / delta)", std::max(1 / ratios.smallest, ratios.largest), kFactor}};
}

std::vector<Trial> pilot_factor(const TheorySizes& sizes, std::uint64_t seed) {
  const Attention a = make_attention(sizes, seed);
  return {
      {"d = 10 / C ln(2 n / delta)", pilot_ratios(a, fewer_pilots(a), seed).smallest, 1 / kFactor}};
}

std::vector<Trial> few_pilots(const TheorySizes& sizes, std::uint64_t seed) {
  const Attention a = make_attention(sizes, seed);
  return trials_over("d", kColumns, [&](std::int64_t d) {
    return std::pair(pilot_ratios(a, d, seed).smallest, 1 / kFactor);
  });
}

}  // namespace

/// E |B V - B S S^T V|_F^2 = ((sum |B^(i)| |V_(i)|)^2 - |B V|_F^2) / d for the paper's p, times
/// `factor`, which is 1.
Statement sampling_expectation(double factor) {
  const auto distance = [factor](const TheorySizes& sizes, std::uint64_t seed) {
    const Attention a = make_attention(sizes, seed);
    const double norm = frobenius(a.product);
    return trials_over("d", kColumns, [&](std::int64_t d) {
      const double expected = factor * (a.weight * a.weight - norm * norm) / static_cast<double>(d);
      const Estimate found = estimate(squared_errors(a, a.probabilities, d, seed));
      return std::pair(std::abs(found.mean - expected) / found.error, kDeviations);
    });
  };
  return {"sampling-error",
          "Skeinformer, Proposition 1",
          "E |B V - B S S^T V|_F^2 = ((sum |B^(i)| |V_(i)|)^2 - |B V|_F^2) / d",
          "distance of the mean of 400 draws, in standard errors",
          Relation::at_most,
          true,
          0,
          distance};
}

std::vector<Statement> sampling_statements() {
  return {
      {"sampling-unbiased", "Skeinformer, Definition 3.1", "E(S S^T) = I",
       "largest distance of a diagonal entry's mean from 1, in standard errors", Relation::at_most,
       true, 0, unbiased},
      sampling_expectation(1),
      {"frobenius-bound", "Skeinformer, Proposition 1",
       "p_i >= beta |B^(i)| |V_(i)| / sum: |B V - B S S^T V|_F^2 <= eta^2 / (beta d) |B|_F^2 "
       "|V|_F^2 "
       "with probability 0.9, eta = 1 + sqrt(8 / beta ln 10)",
       "share of 400 draws that break it", Relation::at_most, true, 0, frobenius_bound},
      {"better-than-uniform", "Skeinformer, sec. 3.3.1 and 4.1",
       "p in proportion to |B^(i)| |V_(i)| has at most the expected error of uniform sampling",
       "(sum |B^(i)| |V_(i)|)^2 over n sum |B^(i)|^2 |V_(i)|^2", Relation::at_most, true, 0,
       better_than_uniform},
      {"pilot-lemma", "Skeinformer, Lemma 1",
       "d >= 2 / C^2 ln(2 n / delta) pilot rows estimate every p_i within a factor of sqrt 3, with "
       "probability 1 - delta = 0.9; C = min_i mean_j b_ji^2 / max_j b_ji^2",
       "largest p^_i / p_i or p_i / p^_i", Relation::at_most, true, kFailure, pilot_lemma},
      {"pilot-factor", "Skeinformer, Lemma 1",
       "10 / C ln(2 n / delta) pilot rows, which are fewer where C is small, estimate every p_i by "
       "at least p_i / sqrt 3, with probability 0.9 (Chernoff)",
       "smallest p^_i / p_i", Relation::at_least, true, kFailure, pilot_factor},
      {"few-pilots", "Skeinformer, Lemma 1", "the same for as few pilot rows as the method draws",
       "smallest p^_i / p_i", Relation::at_least, false, 0, few_pilots},
  };
}

}  // namespace skytape::train
