// One optimiser step: upload, forward and backward of each microbatch, update. Nothing in a step
// waits for the device unless ops are timed or checked, or other processes take part; loss and
// accuracy accumulate there and are read at log points only. On a GPU the step of each layout of a
// batch is captured in a CUDA graph and replayed.
#pragma once

#include <chrono>
#include <cstdint>

#include "autograd/observers.hpp"
#include "data/batch.hpp"
#include "nn/model.hpp"
#include "nn/optimizer.hpp"
#include "train/step/microbatches.hpp"
#include "train/step/share.hpp"
#include "train/step/step_graphs.hpp"
#include "train/step/step_inputs.hpp"
#include "train/step/step_sum.hpp"

namespace skytape::train {

/// Means since the last reading.
struct TrainMetrics {
  double loss = 0;
  double accuracy = 0;
  std::int64_t steps = 0;
};

/// Gradients and updates of a model. A batch is computed in microbatches: the mean loss of each
/// counts with its share of the batch, so the gradient is that of the whole batch.
class Trainer {
 public:
  /// graphs: false submits every step op by op, also on a GPU. share: the microbatches of this
  /// process where several make the same steps.
  Trainer(nn::Model& model, const nn::AdamWConfig& adamw, const nn::Schedule& schedule,
          std::uint64_t seed, const MicrobatchLimits& limits, bool graphs = true,
          StepShare share = {});

  /// One optimiser step on one batch.
  void step(const data::Batch& batch);

  /// Means over the steps since the last call, read from the device; then counts anew.
  [[nodiscard]] TrainMetrics take_metrics();
  /// True while the metrics since the last reading are finite. Waits for the device.
  [[nodiscard]] bool metrics_finite() const;

  /// Every op checks its output and gradient, and the first bad one throws NonFiniteError. Such
  /// steps, and timed ones, are not replayed.
  void check_finite(bool on) { check_finite_ = on; }

  /// Adds the seconds of every op to `seconds`, and of the rest of a step under "optimiser", "data"
  /// and, between processes, "exchange". nullptr: no longer.
  void time_ops(OpSeconds* seconds) { seconds_ = seconds; }

  [[nodiscard]] nn::AdamW& optimizer() { return optimizer_; }
  /// Sums behind the metrics, f32[2] (loss, correct share), and the steps they cover: part of a
  /// checkpoint, so that a resumed run logs the same means.
  [[nodiscard]] Tensor& sums() { return metric_sums_; }
  [[nodiscard]] std::int64_t summed_steps() const { return summed_steps_; }
  void resume_sums(std::int64_t steps) { summed_steps_ = steps; }
  [[nodiscard]] const StepGraphs& graphs() const { return graphs_; }

 private:
  using Clock = std::chrono::steady_clock;
  void add_time(const char* part, Clock::time_point start);
  void submit(std::size_t index);
  void add_microbatch(std::size_t index);
  void update();
  [[nodiscard]] nn::Scored score(Tape& tape, std::size_t index, const DeviceBatch& batch,
                                 const nn::StepContext& context) const;

  nn::Model& model_;
  nn::AdamW optimizer_;
  std::uint64_t seed_;
  MicrobatchLimits limits_;
  StepInputs inputs_;
  StepGraphs graphs_;
  StepSum sum_;
  Tensor metric_sums_;  // f32[2]: loss and correct share since the last log point
  std::int64_t summed_steps_ = 0;
  bool check_finite_ = false;
  OpSeconds* seconds_ = nullptr;
};

}  // namespace skytape::train
