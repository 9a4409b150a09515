// AdamW over the flat parameter buffer, and the schedules that drive it.
#pragma once

#include <array>
#include <cstdint>

#include "autograd/parameter.hpp"

namespace skytape::nn {

/// Linear two-phase OneCycle with momentum cycling, as PyTorch's OneCycleLR with the settings of
/// the papers' code: the rate rises from max/25 to max until step `warmup` - 1, then falls to
/// max/25/1e4 at step `steps` - 1; beta1 runs 0.95 -> 0.85 -> 0.95.
struct OneCycle {
  double max_lr = 1e-4;
  std::int64_t steps = 50000;
  std::int64_t warmup = 1000;   // steps; at least 2
  double start_divisor = 25;    // max_lr / start
  double final_divisor = 1e4;   // start / end
  double beta1_at_ends = 0.95;  // of the cycle
  double beta1_at_peak = 0.85;  // at the highest rate

  [[nodiscard]] double lr(std::int64_t step) const;  ///< step counts from 0
  [[nodiscard]] double beta1(std::int64_t step) const;
};

/// Linear warm-up and decay, as BERT and RoBERTa are trained: the rate rises in equal parts, of
/// which step 0 has the first, and falls to 0 at the last step; beta1 stays 0.9.
[[nodiscard]] OneCycle warmup_and_decay(double max_lr, std::int64_t steps, std::int64_t warmup);

struct AdamWConfig {
  double beta2 = 0.999;
  double epsilon = 1e-6;
  double weight_decay = 0;
  double clip_value = 1;  // every gradient entry is clamped to ±clip_value first; 0: off
};

/// AdamW (Loshchilov & Hutter 2019) with the schedule's beta1. Parameters that no gradient reached
/// are left untouched, weight decay included.
class AdamW {
 public:
  AdamW(ParameterStore& store, const AdamWConfig& config, const OneCycle& schedule);

  /// One update from the store's gradients; then the schedule advances.
  void step();

  /// The same in parts, for an update that runs as part of a CUDA graph: the numbers that the next
  /// one reads on the device (lr, beta1, 1 - beta1^t, sqrt(1 - beta2^t)), the update with such
  /// numbers, hyper: f64[4], and the advance.
  [[nodiscard]] std::array<double, 4> next_hyper() const;
  void update(const Tensor& hyper);
  void advance() { ++steps_done_; }

  [[nodiscard]] std::int64_t steps_done() const { return steps_done_; }
  [[nodiscard]] const OneCycle& schedule() const { return schedule_; }
  /// For checkpoints: first and second moments, flat as the store's values, and the step count.
  [[nodiscard]] Tensor& first_moment() { return m_; }
  [[nodiscard]] Tensor& second_moment() { return v_; }
  void resume_at(std::int64_t steps_done) { steps_done_ = steps_done; }

 private:
  ParameterStore& store_;
  AdamWConfig config_;
  OneCycle schedule_;
  Tensor m_, v_;  // flat, as store.values()
  std::int64_t steps_done_ = 0;
};

}  // namespace skytape::nn
