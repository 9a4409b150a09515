// What the papers print about time and memory, on one Tesla V100 of 16 GB: our machines differ, so
// only ratios between methods can be compared.
#pragma once

#include <optional>
#include <string_view>

namespace skytape::train {

/// Skyformer (Chen et al., NeurIPS 2021), Table 2: 50,000 steps.
struct SkyformerCost {
  double hours = 0, gigabytes = 0;
};
/// Nothing for a method or task that the table does not have.
[[nodiscard]] std::optional<SkyformerCost> skyformer_cost(std::string_view method,
                                                          std::string_view task);

/// Skeinformer (Chen et al., NAACL 2022), Table 2: 1,000 steps, and the examples computed at once.
struct SkeinformerCost {
  double minutes = 0;
  int examples = 0;
};
[[nodiscard]] std::optional<SkeinformerCost> skeinformer_cost(std::string_view method,
                                                              std::string_view task);

/// Skeinformer's preprint (arXiv 2112.05359), Table 3: thousands of steps until early stopping, and
/// total minutes. One run each.
struct ConvergenceCost {
  double kilosteps = 0, minutes = 0;
};
[[nodiscard]] std::optional<ConvergenceCost> skeinformer_convergence(std::string_view method,
                                                                     std::string_view task);

/// Linformer (Wang et al. 2020), Table 3: inference with n tokens and projected length k, against
/// exact attention. Memory is told by the batches that fit.
struct LinformerGain {
  double times_faster = 0, times_less_memory = 0;
};
[[nodiscard]] std::optional<LinformerGain> linformer_gain(int n, int k);

/// Skyformer, Table 3 (appendix F): instability score over softmax's.
[[nodiscard]] std::optional<double> skyformer_instability(std::string_view method,
                                                          std::string_view task);

}  // namespace skytape::train
