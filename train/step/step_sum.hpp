// The gradient and the metrics of a step, added up over its microbatches in their order, whichever
// rank computed them: ((g_0 + g_1) + g_2) + … with the same bits on any number of ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "tensor/core/tensor.hpp"
#include "train/ranks/device_sum.hpp"
#include "train/ranks/ranks.hpp"

namespace skytape::train {

class StepSum {
 public:
  /// Makes a sum of `gradients` numbers, and of loss and correct share behind them.
  StepSum(const Ranks& ranks, std::int64_t gradients, Device device);

  /// Begins a step of so many microbatches on all ranks together.
  void begin(std::int64_t microbatches);
  /// Adds what the index-th microbatch of this rank gives: f32[gradients], and two single numbers.
  void add(std::size_t index, const Tensor& gradients, const Tensor& loss, const Tensor& correct);
  /// Adds up what the ranks have: submitted, where GPUs do that among themselves, else through the
  /// hosts, waiting for the device. No part of a captured step: NCCL demands that all ranks capture
  /// an exchange or none does, and each rank's batches have separate layouts.
  void exchange();

  [[nodiscard]] Tensor gradients() const { return total_.slice(0, count_); }  // f32[gradients]
  [[nodiscard]] Tensor metrics() const { return total_.slice(count_, count_ + 2); }  // f32[2]
  /// Spent in exchange() so far, waiting for slower ranks included where hosts exchange.
  [[nodiscard]] double seconds() const { return seconds_; }

 private:
  [[nodiscard]] bool keeps_rows() const;

  const Ranks& ranks_;
  Device device_;
  std::int64_t count_, width_;     // gradients; numbers of a row, filled up to a share of each rank
  std::int64_t microbatches_ = 0;  // of this step
  // f32[microbatches of this rank, width] where the order of all counts, else f32[1, width]: the
  // sum of this rank's.
  Tensor rows_;
  Tensor total_;  // f32[width]
  std::unique_ptr<DeviceSum> device_sum_;
  double seconds_ = 0;
};

}  // namespace skytape::train
