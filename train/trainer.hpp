// One optimiser step: upload, forward and backward of each chunk, update. Nothing in a step waits
// for the device; loss and accuracy accumulate there and are read at log points only.
#pragma once

#include <chrono>
#include <cstdint>

#include "data/batches.hpp"
#include "nn/model.hpp"
#include "nn/optimizer.hpp"
#include "train/chunks.hpp"

namespace skytape::train {

/// Means since the last reading.
struct TrainFigures {
  double loss = 0;
  double accuracy = 0;
  std::int64_t steps = 0;
};

/// Gradients and updates of a model. A batch is computed in chunks: each chunk's mean loss counts
/// with the chunk's share of the batch, so the gradient is that of the whole batch.
class Trainer {
 public:
  Trainer(nn::Model& model, const nn::AdamWConfig& adamw, const nn::OneCycle& schedule,
          std::uint64_t seed, const ChunkLimits& limits);

  /// One optimiser step on one batch.
  void step(const data::Batch& batch);

  /// Means over the steps since the last call, read from the device; then counts anew.
  [[nodiscard]] TrainFigures take_figures();
  /// True while the figures since the last reading are finite. Waits for the device.
  [[nodiscard]] bool figures_finite() const;

  /// Every op checks its output and gradient, and the first bad one throws NonFiniteError.
  void check_finite(bool on) { check_finite_ = on; }

  /// Adds the seconds of every op to `seconds`, and of the rest of a step under "optimiser" and
  /// "data". nullptr: no longer.
  void time_ops(OpSeconds* seconds) { seconds_ = seconds; }

  [[nodiscard]] nn::AdamW& optimizer() { return optimizer_; }
  /// Sums behind the figures, f32[2] (loss, correct share), and the steps they cover: part of a
  /// checkpoint, so that a resumed run logs the same means.
  [[nodiscard]] Tensor& sums() { return sums_; }
  [[nodiscard]] std::int64_t summed_steps() const { return summed_steps_; }
  void resume_sums(std::int64_t steps) { summed_steps_ = steps; }

 private:
  using Clock = std::chrono::steady_clock;
  void add_time(const char* part, Clock::time_point start);
  void add_chunk(const data::Batch& batch, const Chunk& chunk, nn::StepContext& context);

  nn::Model& model_;
  nn::AdamW optimizer_;
  Random random_;  // of the run; its step lives on the device
  ChunkLimits limits_;
  Tensor sums_;  // f32[2]
  std::int64_t summed_steps_ = 0;
  bool check_finite_ = false;
  OpSeconds* seconds_ = nullptr;
};

}  // namespace skytape::train
