// The gradients of a training step, summed over the ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "autograd/parameter.hpp"
#include "tensor/core/tensor.hpp"
#include "train/ranks/device_sum.hpp"
#include "train/ranks/ranks.hpp"
#include "train/step/share.hpp"

namespace skytape::train {

class GradientSum {
 public:
  /// Numbers of a bucket: 25 MiB, as in PyTorch's DistributedDataParallel.
  static constexpr std::int64_t kBucketSize = 25 * 1024 * 1024 / 4;

  /// Sums the gradients of these parameters. Made by all ranks together. On a CPU the exchange of a
  /// step begins during its backward pass, in buckets of at least so many numbers. On a GPU a step
  /// has one exchange, behind the step's graph.
  GradientSum(const Ranks& ranks, ParameterStore& parameters,
              std::int64_t bucket_size = kBucketSize);
  GradientSum(const GradientSum&) = delete;
  GradientSum& operator=(const GradientSum&) = delete;

  /// Returns what a Trainer of that model needs; it refers to this object.
  [[nodiscard]] StepShare share();
  /// Spent in sums so far, waiting for slower ranks included where hosts exchange.
  [[nodiscard]] double seconds() const { return seconds_; }

 private:
  void begin(const Tensor& rows, std::int64_t microbatches, const Tensor& total, Bucket bucket);
  void finish();
  void agree_on_reached();

  const Ranks& ranks_;
  ParameterStore& parameters_;
  bool in_order_;
  std::int64_t bucket_size_;
  std::unique_ptr<DeviceSum> device_sum_;
  std::vector<std::function<void()>> begun_;  // on hosts: each waits for a sum of this step
  bool reached_known_ = false;                // all ranks know which parameters a gradient reaches
  double seconds_ = 0;
};

}  // namespace skytape::train
