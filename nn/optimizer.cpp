#include "nn/optimizer.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "tensor/kernels/optimizer.hpp"

namespace skytape::nn {
namespace {

constexpr double kStartDivisor = 25;   // max_lr / start
constexpr double kFinalDivisor = 1e4;  // start / end
constexpr double kBeta1Slow = 0.95;    // at both ends of the cycle
constexpr double kBeta1Fast = 0.85;    // at the highest rate
constexpr double kBeta1 = 0.9;         // of schedules that do not cycle it

/// Piecewise linear: start at step 0, peak at warmup - 1, end at steps - 1.
double two_phases(const Schedule& cycle, std::int64_t step, double start, double peak, double end) {
  const auto peak_step = static_cast<double>(cycle.warmup - 1);
  const auto last_step = static_cast<double>(cycle.steps - 1);
  const auto k = static_cast<double>(step);
  if (k <= peak_step) return start + (peak - start) * (k / peak_step);
  if (k >= last_step) return end;
  return peak + (end - peak) * ((k - peak_step) / (last_step - peak_step));
}

}  // namespace

double Schedule::lr(std::int64_t step) const {
  if (curve == Curve::one_cycle) {
    const double start = max_lr / kStartDivisor;
    return two_phases(*this, step, start, max_lr, start / kFinalDivisor);
  }
  if (curve == Curve::linear) {
    return two_phases(*this, step, max_lr / static_cast<double>(warmup), max_lr, 0);
  }
  const auto t = static_cast<double>(step), warm = static_cast<double>(warmup);
  const double rising = max_lr * std::min(1.0, t / warm);
  if (curve == Curve::inverse_sqrt) return rising * std::sqrt(warm / std::max(t, warm));
  const double share = std::max(0.0, t - warm) / static_cast<double>(steps);
  return rising * (1 + std::cos(std::numbers::pi * share)) / 2;
}

double Schedule::beta1(std::int64_t step) const {
  if (curve != Curve::one_cycle) return kBeta1;
  return two_phases(*this, step, kBeta1Slow, kBeta1Fast, kBeta1Slow);
}

AdamW::AdamW(ParameterStore& store, const AdamWConfig& config, const Schedule& schedule)
    : store_(store), config_(config), schedule_(schedule) {
  ENSURE(store.packed(), "AdamW: the parameter store is not packed yet");
  ENSURE(schedule.warmup >= 2, "Schedule: warmup must be at least 2 steps, got ", schedule.warmup);
  m_ = zeros_like(store.values());
  v_ = zeros_like(store.values());
}

void AdamW::step() {
  const std::array<double, 4> hyper = next_hyper();
  update(Tensor::from(std::span<const double>(hyper), {4}, DType::f64, m_.device()));
  advance();
}

std::array<double, 4> AdamW::next_hyper() const {
  const double beta1 = schedule_.beta1(steps_done_);
  const auto t = static_cast<double>(steps_done_ + 1);
  return {schedule_.lr(steps_done_), beta1, 1 - std::pow(beta1, t),
          std::sqrt(1 - std::pow(config_.beta2, t))};
}

void AdamW::update(const Tensor& hyper) {
  // Neighbouring parameters with a gradient are updated in one go; only alignment lies between
  // them.
  const std::int64_t alignment =
      kParameterAlignment / static_cast<std::int64_t>(size_of(m_.dtype()));
  std::int64_t begin = 0;
  std::int64_t end = 0;
  const auto update_range = [&] {
    if (begin == end) return;
    tensor::adamw_step(store_.values(), store_.gradients(), m_, v_, begin, end, hyper,
                       config_.clip_value, config_.weight_decay, config_.beta2, config_.epsilon);
  };
  for (const Parameter& p : store_.parameters()) {
    if (!p.trainable || !p.has_gradient) continue;
    if (p.offset - end >= alignment) {
      update_range();
      begin = p.offset;
    }
    end = p.offset + p.shape.numel();
  }
  update_range();
}

}  // namespace skytape::nn
