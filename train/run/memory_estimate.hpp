// The memory that a run takes at least: known before any of it is taken.
#pragma once

#include <cstdint>
#include <string>

#include "train/config/run_config.hpp"

namespace skytape::train {

/// Bytes, which for some settings are more than an integer holds.
struct MemoryEstimate {
  double parameters = 0;   // of values, gradients and both moments
  double sums = 0;         // of gradients being added up: a parameter's, and those of microbatches
  double activations = 0;  // that every method keeps for backward; most keep more
  [[nodiscard]] double bytes() const { return parameters + sums + activations; }
};

/// Estimates the memory of a training run whose longest sequence has `longest` tokens.
[[nodiscard]] MemoryEstimate estimate_memory(const RunConfig& config, std::int64_t longest);

/// "memory: at least 70.9 MB (parameters with gradients and moments 3.4 MB, gradients being added up
/// 0.8 MB, activations of examples of 2000 tokens 66.7 MB); 12300.0 MB are free".
[[nodiscard]] std::string memory_text(const RunConfig& config, std::int64_t longest);

/// UsageError with memory_text() if that does not fit what is free on the run's device.
void refuse_if_too_large(const RunConfig& config, std::int64_t longest);

}  // namespace skytape::train
