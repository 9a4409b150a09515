#include "nn/optimizer.hpp"

#include <array>
#include <cmath>

#include "tensor/kernels/optimizer.hpp"

namespace skytape::nn {

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
