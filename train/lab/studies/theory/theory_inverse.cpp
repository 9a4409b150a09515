// Skyformer, section 4.4: how far the iterative inverse comes.
//
// Started at V = M^T / s, s the largest column sum, an eigenvalue x of M V obeys
//   x <- 1 - e^3 (3 + e) / 4,  e = 1 - x,
// from x = l^2 / s for an eigenvalue l of a symmetric M. Small ones grow by 3.25 a step.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "attention/feature_maps/gaussian_kernel.hpp"
#include "attention/inverse/iterative_inverse.hpp"
#include "tensor/gemm/gemm.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/kernels/reduce.hpp"
#include "tensor/movement/layout.hpp"
#include "train/lab/studies/theory/theory_parts.hpp"

namespace skytape::train {
namespace {

constexpr double kConverged = 1e-6;  // |I - M Z|_2 that counts as an inverse
constexpr std::int64_t kMostSteps = 100;

/// |I - M Z|_2 after so many steps; m: [1, 1, L, L].
double residual(const Tensor& m, std::int64_t steps) {
  attention::InverseSaved saved;
  attention::InverseConfig config;
  config.steps = steps;
  const Tensor z = attention::inverse_forward(m, config, saved);
  return spectral_norm(attention::shifted_identity(tensor::matmul(m, z), -1, 1));
}

/// Fewest steps whose residual is below kConverged.
std::int64_t steps_needed(const Tensor& m) {
  for (std::int64_t steps = 1; steps < kMostSteps; ++steps) {
    if (residual(m, steps) <= kConverged) return steps;
  }
  return kMostSteps;
}

double largest_column_sum(const Tensor& m) {
  return tensor::max(tensor::sum(m, 2), 2).first.item();
}

/// Landmarks' kernel matrix: [1, 1, d, d]. Real landmarks are queries and keys, half of each, and
/// have the deviation that they have.
Tensor landmark_kernel(std::int64_t d, double deviation, const TheorySizes& sizes,
                       std::uint64_t seed) {
  const double scale = std::pow(static_cast<double>(sizes.width), -0.25);
  Tensor w;  // [1, 1, d, p]
  if (sizes.real) {
    const std::array<Tensor, 2> halves = {theory_rows(d / 2, sizes, seed, 1),
                                          theory_rows(d - d / 2, sizes, seed, 2)};
    w = tensor::affine(tensor::concat(halves, 0), scale).reshape({1, 1, d, sizes.width});
  } else {
    TheorySizes spread = sizes;
    spread.deviation = deviation * scale;
    w = theory_numbers({1, 1, d, sizes.width}, spread, seed, 1);
  }
  return attention::kernel_matrix(attention::Kernel::gaussian, w, w);
}

/// A positive matrix of the wanted condition, largest eigenvalue 1: a landmarks' matrix, shifted
/// and scaled.
Tensor conditioned(double condition, const TheorySizes& sizes, std::uint64_t seed) {
  const Tensor k = landmark_kernel(64, sizes.deviation, sizes, seed);
  const auto values = eigenvalues(k);
  const double gamma = (values.front() - condition * values.back()) / (condition - 1);
  const double scale = 1 / (values.front() + gamma);
  return attention::shifted_identity(k, scale, scale * gamma);
}

/// Steps until |I - M Z| <= 1e-6 for a matrix of condition c with largest eigenvalue 1:
///   at most log(s c^2) / log 3.25 + 3.4,
/// s the largest column sum. (The recurrence above reaches 1e-6 after at most that many steps,
/// whatever the start.)
std::vector<Trial> steps_for_condition(const TheorySizes& sizes, std::uint64_t seed) {
  std::vector<Trial> trials;
  for (const double condition : {1e1, 1e2, 1e3, 1e4, 1e5}) {
    const Tensor m = conditioned(condition, sizes, seed);
    const double start = largest_column_sum(m) * condition * condition;
    trials.push_back({fmt::format("condition {:.0e}", condition),
                      static_cast<double>(steps_needed(m)),
                      std::log(start) / std::log(3.25) + 3.4});
  }
  return trials;
}

/// Tests whether the papers' six steps invert M^ = D^(-1/2) (k(W, W) + 0.1 I) D^(-1/2) of 128
/// landmarks, for queries and keys as a fresh model makes them (0.2), and larger ones.
std::vector<Trial> six_steps(const TheorySizes& sizes, std::uint64_t seed) {
  constexpr std::int64_t kLandmarks = 128, kSteps = 6;
  constexpr double kGamma = 0.1, kInverted = 1e-2;
  std::vector<Trial> trials;
  const std::vector<double> deviations =
      sizes.real ? std::vector<double>{sizes.deviation} : std::vector<double>{0.2, 0.5, 1.0};
  for (const double deviation : deviations) {
    const Tensor m =
        attention::shifted_identity(landmark_kernel(kLandmarks, deviation, sizes, seed), 1, kGamma);
    const std::string at =
        sizes.real ? "queries and keys as they are" : fmt::format("deviation {}", deviation);
    trials.push_back({at, residual(scaled_by_row_sums(m), kSteps), kInverted});
  }
  return trials;
}

}  // namespace

std::vector<Statement> inverse_statements() {
  return {
      {"inverse-steps", "Skyformer, sec. 4.4",
       "log(s c^2) / log 3.25 + 3.4 steps invert a matrix of condition c",
       "steps until |I - M Z| <= 1e-6", Relation::at_most, true, 0, steps_for_condition},
      {"six-steps", "Skyformer, sec. 4.4", "six steps invert M^ of 128 landmarks",
       "|I - M^ Z| after six steps", Relation::at_most, false, 0, six_steps},
  };
}

}  // namespace skytape::train
