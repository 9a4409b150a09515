// The inputs of a step from the host: the batch, the step's number, the optimiser's numbers. They
// are consecutive in memory and reach the device in one copy, before the step's work is
// submitted, so that the work itself is the same for every batch of one layout.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "data/batch.hpp"
#include "nn/model.hpp"
#include "tensor/launch/staging.hpp"
#include "train/step/microbatches.hpp"

namespace skytape::train {

/// A microbatch on the model's device.
struct DeviceBatch {
  nn::ModelInput input;                                 // [B, N]
  Tensor labels;                                        // i32[B]
  nn::MaskedTargets targets;                            // where the batch has some
  std::array<Tensor, nn::kMaxSequences> fewest_tokens;  // i32[1]: of the full batch, unmasked
};

/// Numbers of a step, apart from its batch.
struct StepNumbers {
  std::int64_t step = 0;          // that random draws are made from
  std::array<double, 4> hyper{};  // AdamW::next_hyper
};

class StepInputs {
 public:
  explicit StepInputs(Device device) : device_(device) {}

  /// Copies the microbatches of a batch to the device. Work submitted before still reads the batch
  /// before.
  void upload(const data::Batch& batch, std::vector<Microbatch> microbatches,
              const StepNumbers& numbers);

  [[nodiscard]] const std::vector<Microbatch>& microbatches() const { return microbatches_; }
  [[nodiscard]] std::int64_t examples() const { return examples_; }  ///< of all microbatches
  [[nodiscard]] DeviceBatch device_batch(std::size_t microbatch) const;
  [[nodiscard]] Tensor step() const;   // i32[1]
  [[nodiscard]] Tensor hyper() const;  // f64[4]

  /// Everything about the last contents that decides which work a microbatch submits: two of one
  /// layout differ in numbers on the device only. The widths of earlier microbatches do not enter,
  /// since every microbatch has room for its full width.
  [[nodiscard]] std::vector<std::int64_t> layout(std::size_t microbatch) const;

 private:
  void reserve(const data::Batch& batch, const std::vector<Microbatch>& microbatches);

  Device device_;
  std::unique_ptr<Staging> staging_;
  std::int64_t stagings_ = 0;  // how many there were: addresses are part of the layout
  std::size_t capacity_ = 0;
  std::vector<Microbatch> microbatches_;
  std::vector<std::int64_t> begins_;  // bytes before each microbatch's numbers
  std::int64_t sequences_ = 1, examples_ = 0;
  double target_rate_ = 0;  // share of a sequence's tokens that have targets
};

/// One microbatch alone, or the batch as it is.
[[nodiscard]] DeviceBatch upload(const data::Batch& batch, const Microbatch& microbatch,
                                 Device device);
[[nodiscard]] DeviceBatch upload(const data::Batch& batch, Device device);

}  // namespace skytape::train
