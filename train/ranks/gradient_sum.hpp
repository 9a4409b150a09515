// The gradients of a training step, summed over the ranks.
#pragma once

#include <cstdint>
#include <memory>

#include "autograd/parameter.hpp"
#include "tensor/core/tensor.hpp"
#include "train/ranks/device_sum.hpp"
#include "train/ranks/ranks.hpp"
#include "train/step/share.hpp"

namespace skytape::train {

class GradientSum {
 public:
  /// Of a model with these parameters. Made by all ranks together.
  GradientSum(const Ranks& ranks, ParameterStore& parameters);
  GradientSum(const GradientSum&) = delete;
  GradientSum& operator=(const GradientSum&) = delete;

  /// Returns what a Trainer of that model needs; it refers to this object.
  [[nodiscard]] StepShare share();
  /// Spent in sums so far, waiting for slower ranks included where hosts exchange.
  [[nodiscard]] double seconds() const { return seconds_; }

 private:
  void sum(const Tensor& rows, std::int64_t microbatches, Tensor& total);
  void sum_on_hosts(const Tensor& rows, std::int64_t microbatches, Tensor& total);
  void agree_on_reached();

  const Ranks& ranks_;
  ParameterStore& parameters_;
  bool in_order_;
  std::unique_ptr<DeviceSum> device_sum_;
  bool reached_known_ = false;  // all ranks know which parameters a gradient reaches
  double seconds_ = 0;
};

}  // namespace skytape::train
