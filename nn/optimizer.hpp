// AdamW over the flat parameter buffer, and the schedule that drives it.
#pragma once

#include <array>
#include <cstdint>

#include "autograd/parameter.hpp"

namespace skytape::nn {

/// How the learning rate runs over the steps t = 0, 1, …
enum class Curve {
  /// Linear in two phases with momentum cycling, as PyTorch's OneCycleLR with the settings of the
  /// papers' code: from max/25 to max until step `warmup` - 1, then to max/25/1e4 at step `steps` - 1;
  /// beta1 runs 0.95 -> 0.85 -> 0.95.
  one_cycle,
  /// max min(1, t / warmup) sqrt(warmup / max(t, warmup)), beta1 = 0.9: as the Long Range Arena's
  /// code, which begins with a step of rate 0.
  inverse_sqrt,
  /// max min(1, t / warmup) (1 + cos(pi (t - warmup)+ / steps)) / 2, beta1 = 0.9: as that code.
  cosine,
  /// Up from max / warmup until step `warmup` - 1, then down to 0 at step `steps` - 1, both in a
  /// straight line; beta1 = 0.9: RoBERTa's (Liu et al. 2019, sec. 3).
  linear
};

struct Schedule {
  double max_lr = 1e-4;
  std::int64_t steps = 50000;
  std::int64_t warmup = 1000;  // steps; at least 2
  Curve curve = Curve::one_cycle;

  [[nodiscard]] double lr(std::int64_t step) const;  ///< step counts from 0
  [[nodiscard]] double beta1(std::int64_t step) const;
};

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
  AdamW(ParameterStore& store, const AdamWConfig& config, const Schedule& schedule);

  /// One update from the store's gradients; then the schedule advances.
  void step();

  /// The same in parts, for an update that runs as part of a CUDA graph: the numbers that the next
  /// one reads on the device (lr, beta1, 1 - beta1^t, sqrt(1 - beta2^t)), the update with such
  /// numbers, hyper: f64[4], and the advance.
  [[nodiscard]] std::array<double, 4> next_hyper() const;
  void update(const Tensor& hyper);
  void advance() { ++steps_done_; }

  [[nodiscard]] std::int64_t steps_done() const { return steps_done_; }
  [[nodiscard]] const Schedule& schedule() const { return schedule_; }
  /// For checkpoints: first and second moments, flat as the store's values, and the step count.
  [[nodiscard]] Tensor& first_moment() { return m_; }
  [[nodiscard]] Tensor& second_moment() { return v_; }
  void resume_at(std::int64_t steps_done) { steps_done_ = steps_done; }

 private:
  ParameterStore& store_;
  AdamWConfig config_;
  Schedule schedule_;
  Tensor m_, v_;  // flat, as store.values()
  std::int64_t steps_done_ = 0;
};

}  // namespace skytape::nn
