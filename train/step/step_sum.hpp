// The gradient and the metrics of a step, added up over its microbatches in their order, whichever
// process computed them: ((g_0 + g_1) + g_2) + … with the same bits for any number of processes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tensor/core/tensor.hpp"
#include "train/step/microbatches.hpp"
#include "train/step/share.hpp"

namespace skytape::train {

class StepSum {
 public:
  /// Makes a sum of `gradients` numbers, and of loss and correct share behind them.
  StepSum(std::int64_t gradients, Device device, StepShare share);

  /// Begins a step. Returns those of its microbatches that are computed here.
  [[nodiscard]] std::vector<Microbatch> begin(std::vector<Microbatch> microbatches);
  /// Returns whether there is nothing to add up: one microbatch, one process.
  [[nodiscard]] bool is_one_part() const { return share_.share.whole() && microbatches_ == 1; }
  /// Returns whether the sum is only there after exchange().
  [[nodiscard]] bool needs_exchange() const { return !share_.share.whole(); }

  /// Adds what the index-th microbatch that is computed here gives: f32[gradients], and two single
  /// numbers.
  void add(std::size_t index, const Tensor& gradients, const Tensor& loss, const Tensor& correct);
  /// Adds up what the processes have. No part of a captured step.
  void exchange();

  [[nodiscard]] Tensor gradients() const { return total_.slice(0, count_); }  // f32[gradients]
  [[nodiscard]] Tensor metrics() const { return total_.slice(count_, count_ + 2); }  // f32[2]

 private:
  std::int64_t count_;  // gradients
  Device device_;
  StepShare share_;
  std::int64_t microbatches_ = 0;  // of this step, in all processes
  // f32[microbatches here, gradients + 2] where the order of all counts, else f32[1, …]: their sum.
  Tensor rows_;
  Tensor total_;  // f32[gradients + 2]
};

}  // namespace skytape::train
