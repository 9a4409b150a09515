// The papers' statements, checked with numbers: each is a formula, what is measured, and the bound
// that it must keep, over many seeds.
//
//   theory_kernel.cpp      Skyformer: kernel matrices and their Nystrom approximation
//   theory_inverse.cpp     Skyformer: the iterative inverse
//   theory_sampling.cpp    Skeinformer: column sampling and pilot estimates
//   theory_projection.cpp  Linformer: random projections
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tensor/core/tensor.hpp"
#include "train/formats/table.hpp"
#include "train/lab/studies/attention_inputs.hpp"

namespace skytape::train {

/// Sizes and spread of the random queries, keys and values that statements are tried on, or where
/// real ones come from.
struct TheorySizes {
  std::int64_t n = 128;     // queries and keys
  std::int64_t width = 32;  // of a head (p)
  double deviation = 0.5;   // of every entry of Q, K and V
  /// Real ones, f64[n, p]: which = 1 (Q), 2 (K), 3 (V); empty: random ones.
  std::function<Tensor(std::uint64_t seed, std::uint64_t which)> real = {};
};

/// The attention of one layer of a source on texts of n tokens: seed first_seed + i stands for text
/// i, and for its head i mod H. UsageError for a layer or a length that the source does not have.
[[nodiscard]] TheorySizes real_sizes(const InputSource& source, std::int64_t layer, std::int64_t n,
                                     std::uint64_t first_seed);
/// With real numbers some statements take so many queries.
inline constexpr std::int64_t kFewestReal = 64;

/// One measurement and its bound. A statement may have several cases, always in the same order.
struct Trial {
  std::string at;  // "d = 32"; empty for a statement with one case
  double measured = 0, bound = 0;
};

enum class Relation { at_most, at_least };

struct Statement {
  std::string name;       // "kernel-psd"
  std::string reference;  // "Skyformer, Lemma 1"
  std::string says;       // the formula
  std::string measured;   // what the numbers are
  Relation relation = Relation::at_most;
  bool must_hold = true;  // false: shown because it is instructive, or because it is wrong
  double allowed = 0;     // share of the seeds that may break it: it holds with a probability
  std::function<std::vector<Trial>(const TheorySizes&, std::uint64_t seed)> try_once;
};

/// The statements of one file each; theory_statements() has all of them.
[[nodiscard]] std::vector<Statement> kernel_statements();
[[nodiscard]] std::vector<Statement> inverse_statements();
[[nodiscard]] std::vector<Statement> sampling_statements();
[[nodiscard]] std::vector<Statement> projection_statements();
[[nodiscard]] std::vector<Statement> theory_statements();

/// Two statements with a constant to get wrong, so that tests can see a wrong one noticed:
/// `norm_weight` is 1/2 in the exponent of the Gaussian kernel, `factor` 1 in the expected error.
[[nodiscard]] Statement kernelized_identity(double norm_weight);
[[nodiscard]] Statement sampling_expectation(double factor);

/// One case of a statement over all seeds.
struct Verdict {
  const Statement* statement = nullptr;  // which must live as long
  std::string at;
  double worst = 0, bound = 0;  // of the seed that comes closest to breaking it, or breaks it most
  double mean = 0;              // of the measured numbers
  std::int64_t seeds = 0, broken = 0;
  bool holds = false;  // broken by no more seeds than allowed
};

/// Tries each statement with seeds first_seed, first_seed + 1, …
[[nodiscard]] std::vector<Verdict> check(std::span<const Statement> statements,
                                         const TheorySizes& sizes, std::uint64_t first_seed,
                                         std::int64_t seeds);

/// False if a statement that must hold does not.
[[nodiscard]] bool all_hold(std::span<const Verdict> verdicts);

[[nodiscard]] Table to_table(std::span<const Verdict> verdicts);

/// The first rows of Q (which = 1), K (2) or V (3): f64[rows, p].
[[nodiscard]] Tensor theory_rows(std::int64_t rows, const TheorySizes& sizes, std::uint64_t seed,
                                 std::uint64_t which);

/// Normal numbers of the statement's deviation, f64: which = 1 (Q), 2 (K), 3 (V), … tell arrays of
/// one seed apart.
[[nodiscard]] Tensor theory_numbers(const Shape& shape, const TheorySizes& sizes,
                                    std::uint64_t seed, std::uint64_t which);

}  // namespace skytape::train
