// Sums over the GPUs of several ranks, on the stream that trains: NCCL's all-reduce.
#pragma once

#include <memory>

#include "tensor/core/tensor.hpp"
#include "train/ranks/ranks.hpp"

namespace skytape::train {

/// One GPU for each rank. Made by all ranks together.
class DeviceSum {
 public:
  /// Returns whether this program was built with NCCL: if not, numbers travel through the hosts.
  [[nodiscard]] static bool available();

  explicit DeviceSum(const Ranks& ranks);
  /// Submits the sum over the ranks, in place, behind the work that was submitted before. Every
  /// rank submits one in every step, and none while a CUDA graph is captured.
  void submit(Tensor& numbers) const;

  struct Gpu;  // NCCL's communicator, in device_sum.cu

 private:
  std::shared_ptr<Gpu> gpu_;
};

}  // namespace skytape::train
