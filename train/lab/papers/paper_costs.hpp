// The papers' figures on time and memory, on one Tesla V100 of 16 GB: our machines differ, so only
// ratios between methods can be compared.
#pragma once

#include <optional>
#include <span>
#include <string_view>

namespace skytape::train {

/// A figure of a method on a task.
enum class PaperFigure {
  // Skyformer (Chen et al., NeurIPS 2021), Table 2: 50,000 steps.
  skyformer_hours,
  skyformer_gigabytes,
  // Skeinformer (Chen et al., NAACL 2022), Table 2: 1,000 steps, and the examples computed at once.
  skeinformer_minutes,
  skeinformer_examples,
  // Skeinformer's preprint (arXiv 2112.05359), Table 3: until early stopping. One run each.
  convergence_kilosteps,
  convergence_minutes,
  // Skyformer, Table 3 (appendix F): instability score over softmax's.
  instability,
};
/// The Skeinformer paper's rows of softmax without attention dropout, in place of a method's name;
/// "softmax" is with 0.1. Its code drops out in both, if that row was run under the usual name.
inline constexpr std::string_view kWithoutDropout = "softmax, no attention dropout";
/// The papers' row of a method trained with this attention dropout.
[[nodiscard]] std::string_view paper_row(std::string_view method, double attention_dropout);

/// Nothing for a row or task that the table does not have.
[[nodiscard]] std::optional<double> paper_figure(PaperFigure figure, std::string_view method,
                                                 std::string_view task);

/// Linformer (Wang et al. 2020), Table 3: inference with n tokens and projected length k, against
/// exact attention. Memory is told by the batches that fit.
struct LinformerGain {
  double times_faster = 0, times_less_memory = 0;
};
[[nodiscard]] std::optional<LinformerGain> linformer_gain(int n, int k);

}  // namespace skytape::train
