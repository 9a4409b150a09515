// Spectra of attention, by layer and head: singular values of the output (Skyformer, Figure 4),
// cumulative spectrum of the attention matrix (Linformer, Figure 1), and what Skyformer's theory
// and its landmarks meet: statistical dimension, leverage scores, condition numbers. All in f64.
//
// Notation: H heads, N positions, D head width, L landmarks.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "data/files/json_fwd.hpp"
#include "train/formats/table.hpp"
#include "train/lab/studies/attention_inputs.hpp"

namespace skytape::train {

/// lambda of the statistical dimension as a share of the largest eigenvalue.
inline constexpr std::array kRidges = {1e-1, 1e-2, 1e-3, 1e-4};
/// The share at which leverage scores are kept.
inline constexpr std::size_t kLeverageRidge = 1;

struct SpectrumOptions {
  std::int64_t n = 512;          // N
  std::int64_t examples = 4;     // of the source
  std::int64_t landmarks = 128;  // L
  std::uint64_t seed = 42;       // of the landmarks
};

/// An attention matrix of N x N.
struct MatrixSpectrum {
  std::vector<double> cumulative;  // [N]: share of the first k + 1 singular values in their sum
  double condition = 0;            // largest over smallest, capped at 2^52
};

/// One layer and head; means over the examples, geometric means of condition numbers.
struct HeadSpectrum {
  std::int64_t layer = 0, head = 0;
  std::vector<double> output;  // [D]: singular values of the attention's output, largest first
  MatrixSpectrum softmax;      // exp(Q K^T / sqrt(D)), rows divided by their sums
  MatrixSpectrum kernelized;   // the Gaussian kernel between queries and keys
  // Figures of C = k(X, X), X the scaled queries and keys (exact_attention.hpp), with lambda = a
  // share of its norm: leverage score l_i = [C (C + lambda I)^-1]_ii, statistical dimension = their
  // sum.
  std::array<double, kRidges.size()> dimension = {};
  std::array<double, kRidges.size()> coherence = {};  // 2 N max l_i / dimension; 1: all alike
  std::vector<double> leverage;                       // [2 N], largest first
  // Condition numbers of what Skyformer inverts: the landmarks' kernel matrix, that plus gamma I,
  // and the scaled R (… + gamma I) R that the iteration gets.
  double landmarks = 0, shifted = 0, scaled = 0;
};

/// UsageError for a length that the source does not serve, and for L > 2 N.
[[nodiscard]] std::vector<HeadSpectrum> run_spectrum(const InputSource& source,
                                                     const SpectrumOptions& options);

/// sum += share * values, entry by entry; an empty sum is zeros.
void add(std::vector<double>& sum, const std::vector<double>& values, double share);

/// Smallest number of singular values that make up `share` of their sum.
[[nodiscard]] std::int64_t rank_at(const MatrixSpectrum& spectrum, double share);
/// The share at index N / 4, as Linformer's heat map has it (128 of 512).
[[nodiscard]] double share_at_quarter(const MatrixSpectrum& spectrum);

/// The matrices' spectra, and what theory says of the kernel matrix: a row for each layer and head.
[[nodiscard]] std::vector<Table> tables(const std::vector<HeadSpectrum>& heads);
/// Curves over N are given at eight points of each octave, the first and the last among them.
[[nodiscard]] data::Json to_json(const std::vector<HeadSpectrum>& heads);

}  // namespace skytape::train
