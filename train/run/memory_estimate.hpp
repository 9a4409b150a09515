// The memory that a run takes at least: known before any of it is taken.
#pragma once

#include <cstdint>
#include <string>

#include "train/config/run_config.hpp"

namespace skytape::train {

struct MemoryEstimate {
  std::int64_t parameters = 0;   // bytes of values, gradients and both moments
  std::int64_t activations = 0;  // bytes that every method keeps for backward; most keep more
  [[nodiscard]] std::int64_t bytes() const { return parameters + activations; }
};

/// Estimates the memory of a training run whose longest sequence has `longest` tokens.
[[nodiscard]] MemoryEstimate estimate_memory(const RunConfig& config, std::int64_t longest);

/// "memory: at least 70.1 MB (parameters with gradients and moments 3.4 MB, activations 66.7 MB);
/// 12300.0 MB are free".
[[nodiscard]] std::string memory_text(const RunConfig& config, std::int64_t longest);

/// UsageError with memory_text() if that does not fit what is free on the run's device.
void refuse_if_too_large(const RunConfig& config, std::int64_t longest);

}  // namespace skytape::train
