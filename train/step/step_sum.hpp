// The gradient and the metrics of a step, added up over its microbatches in their order, whichever
// process computed them: ((g_0 + g_1) + g_2) + … with the same bits for any number of processes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "autograd/tape.hpp"
#include "tensor/core/tensor.hpp"
#include "train/step/microbatches.hpp"
#include "train/step/share.hpp"

namespace skytape::train {

class StepSum {
 public:
  /// Makes a sum of the gradients of `parameters`, and of loss and correct share behind them.
  StepSum(ParameterStore& parameters, StepShare share);

  /// Begins a step. Returns those of its microbatches that are computed here.
  [[nodiscard]] std::vector<Microbatch> begin(std::vector<Microbatch> microbatches);
  /// Returns whether there is nothing to add up: one microbatch, one process.
  [[nodiscard]] bool is_one_part() const { return share_.share.whole() && microbatches_ == 1; }
  /// Returns whether the sum is only there after exchange().
  [[nodiscard]] bool needs_exchange() const { return !share_.share.whole(); }

  /// Lets the exchange begin while the tape goes back through the last microbatch that is computed
  /// here: a bucket is added and exchanged as soon as its gradients are final. `index` is that of
  /// the tape's microbatch; nothing happens for the others, and where there is one bucket.
  void overlap(Tape& tape, std::size_t index);
  /// Adds what the index-th microbatch that is computed here gives: the gradients of the buckets
  /// that have not begun yet, and two single numbers.
  void add(std::size_t index, const Tensor& loss, const Tensor& correct);
  /// Adds up what the processes have. No part of a captured step.
  void exchange();

  [[nodiscard]] Tensor gradients() const { return total_.slice(0, count_); }  // f32[gradients]
  [[nodiscard]] Tensor metrics() const { return total_.slice(count_, count_ + 2); }  // f32[2]

 private:
  void add_gradients(std::size_t index, Bucket bucket);
  void add_to(std::size_t index, std::int64_t begin, const Tensor& numbers);
  void begin_next();

  ParameterStore& parameters_;
  std::int64_t count_;  // gradients
  Device device_;
  StepShare share_;
  std::vector<Bucket> buckets_;    // in the order in which they begin
  std::size_t begun_ = 0;          // of them, in this step
  std::int64_t microbatches_ = 0;  // of this step, in all processes
  // f32[microbatches here, gradients + 2] where the order of all counts, else f32[1, …]: their sum.
  Tensor rows_;
  Tensor total_;  // f32[gradients + 2]
};

}  // namespace skytape::train
