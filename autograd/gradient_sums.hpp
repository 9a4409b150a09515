// Adds gradients to the buffers of parameters, a few of them in one launch.
#pragma once

#include <cstdint>
#include <vector>

#include "autograd/parameter.hpp"
#include "tensor/core/tensor.hpp"

namespace skytape {

/// Gradients wait, and are added in one launch as soon as more than 1 MiB of them waits, the same
/// parameter gets a second one, or backward ends. For many small ones launches are most of the
/// cost.
class GradientSums {
 public:
  void add(Parameter& parameter, Tensor gradient);
  /// Adds rows[j], of [T, E], to row index[j], of i32[T], of a parameter [S, E].
  void add_rows(Parameter& parameter, const Tensor& index, const Tensor& rows);
  /// Adds what waits; returns whether anything did.
  bool add_waiting();

 private:
  struct Waiting {
    Parameter* parameter;
    Tensor gradient;
  };
  [[nodiscard]] bool waits_for(const Parameter& parameter) const;

  std::vector<Waiting> waiting_;  // each parameter once
  std::int64_t bytes_ = 0;
};

}  // namespace skytape
