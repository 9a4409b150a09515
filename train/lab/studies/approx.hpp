// The approximation study measures how well methods approximate exact attention: the spectral norm
// of the difference of the outputs, over the number of features (Figure 1 of Skyformer and of
// Skeinformer).
//
// The usual inputs are the first layer's: the embedded sequence through the projections, as in the
// papers' figures. Each method is compared with the exact attention that it stands for
// (Spec::approximates). A trial is one example of the source with fresh draws and fresh initial
// values of the methods; its error is the mean over the heads, and the study reports mean and
// standard error over trials, absolute and relative to the spectral norm of the exact output.
//
// For comparison softmax and kernelized attention have a row "best rank d": with the truncated
// singular value decomposition P_d of its matrix P, the error of P_d V. The papers approximate the
// matrix; the output itself has no more than D singular values, so that its own truncation would be
// exact from d = D on. By Eckart and Young P_d is the best matrix of rank d, but times V it is a
// yardstick, not a bound: a method that knows V can do better.
//
// Notation: H heads, N positions, D head width, d features.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/files/json_fwd.hpp"
#include "train/formats/table.hpp"
#include "train/lab/studies/attention_inputs.hpp"
#include "train/lab/studies/experiment.hpp"

namespace skytape::train {

inline constexpr const char* kBestRank = "best rank d";

struct ApproxOptions {
  std::vector<std::int64_t> lengths;                              // N
  std::vector<std::int64_t> features;                             // d
  std::vector<std::string> methods;                               // of the registry
  std::map<std::string, attention::OptionValues> method_options;  // by method
  std::int64_t trials = 32;
  std::int64_t best_rank_trials = 4;  // of the row "best rank d", which is costly; 0: no such row
  std::int64_t layer = 0;             // of the source; -1: the last
  std::uint64_t seed = 42;            // of draws and initial values of the methods
};

/// One method at one length and number of features. NaN where an output was not finite.
struct ApproxCell {
  std::string method;                    // or kBestRank
  std::string target;                    // the exact attention
  std::int64_t n = 0;                    // N
  std::optional<std::int64_t> features;  // d; none: the method has no such option
  std::int64_t trials = 0;
  std::int64_t examples = 0;  // different ones among the trials
  Estimate absolute, relative;
  Estimate exact_norm;  // spectral norm of the exact output
};

/// All names with something to approximate, in the order of the registry; those that read the
/// layer's input only where there is one (`with_x`).
[[nodiscard]] std::vector<std::string> approximating_methods(bool with_x);

/// Runs the study: cells by length, then target, then method, then features. UsageError before
/// anything is computed for exact methods, d > N, lengths that the source or a method does not
/// serve, and bad options.
[[nodiscard]] std::vector<ApproxCell> run_approx(const InputSource& source,
                                                 const ApproxOptions& options);

/// Two tables (relative in per cent, absolute) for each length and target: rows are methods,
/// columns numbers of features.
[[nodiscard]] std::vector<Table> tables(const std::vector<ApproxCell>& cells);
[[nodiscard]] data::Json to_json(const std::vector<ApproxCell>& cells);

}  // namespace skytape::train
