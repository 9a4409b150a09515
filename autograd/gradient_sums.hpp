// Adds gradients to the buffers of parameters, a few of them in one launch.
#pragma once

#include <cstdint>
#include <vector>

#include "autograd/parameter.hpp"
#include "tensor/core/tensor.hpp"

namespace skytape {

/// A parameter's gradient waits until up to 1 MiB of them can be added in one launch, which for
/// many small ones is most of the cost. Each is added in the order in which it came.
class GradientSums {
 public:
  void add(Parameter& parameter, Tensor gradient);
  /// rows[j] of [T, E] at row index[j], of i32[T], of a parameter [S, E].
  void add_rows(Parameter& parameter, const Tensor& index, const Tensor& rows);
  /// Adds what waits; returns whether anything did.
  bool add_waiting();

 private:
  struct Waiting {
    Parameter* parameter;
    Tensor gradient;
  };
  std::vector<Waiting> waiting_;  // each parameter once
  std::int64_t bytes_ = 0;
};

}  // namespace skytape
