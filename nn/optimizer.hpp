// AdamW over the flat parameter buffer, and the schedule that drives it.
#pragma once

#include <array>
#include <cstdint>

#include "autograd/parameter.hpp"
#include "nn/config/schedule.hpp"

namespace skytape::nn {

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
