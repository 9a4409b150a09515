#include "nn/config/schedule.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

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

}  // namespace skytape::nn
