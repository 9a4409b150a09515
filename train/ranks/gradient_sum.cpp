#include "train/ranks/gradient_sum.hpp"

#include <chrono>
#include <span>
#include <string>

namespace skytape::train {
namespace {

std::span<float> numbers_of(const Tensor& t) {
  return {t.data<float>(), static_cast<std::size_t>(t.numel())};
}

}  // namespace

GradientSum::GradientSum(const Ranks& ranks, ParameterStore& parameters)
    : ranks_(ranks),
      parameters_(parameters),
      in_order_(ranks.reduce_on(parameters.values().device()) == Reduce::ordered) {
  const bool on_gpus = parameters.values().device() == Device::cuda && !in_order_;
  if (!ranks.alone() && on_gpus && DeviceSum::available()) {
    device_sum_ = std::make_unique<DeviceSum>(ranks);
  }
}

StepShare GradientSum::share() {
  if (ranks_.alone()) return {};
  return {ranks_.share(), in_order_,
          [this](const Tensor& rows, std::int64_t microbatches, Tensor& total) {
            sum(rows, microbatches, total);
          }};
}

/// Submits the sum where GPUs make it among themselves; else it goes through the hosts, which wait
/// for the device. It is no part of a captured step: NCCL demands that all ranks capture an exchange
/// or none does, and each rank's batches have separate layouts.
void GradientSum::sum(const Tensor& rows, std::int64_t microbatches, Tensor& total) {
  if (device_sum_ != nullptr) {
    device_sum_->submit(total);
  } else {
    const auto start = std::chrono::steady_clock::now();
    sum_on_hosts(rows, microbatches, total);
    seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  agree_on_reached();
}

void GradientSum::sum_on_hosts(const Tensor& rows, std::int64_t microbatches, Tensor& total) {
  Tensor host = total.to(Device::cpu);  // the tensor itself where it is there
  if (in_order_) {
    const Tensor mine = rows.to(Device::cpu);
    ranks_.sum(numbers_of(mine), microbatches, numbers_of(host));
  } else {
    ranks_.sum(numbers_of(host));
  }
  if (total.device() != Device::cpu) total.copy_from(host);
}

/// A rank that has no microbatch in the first step cannot know which parameters a gradient reaches,
/// and would update none. The first rank has one in every step.
void GradientSum::agree_on_reached() {
  if (reached_known_) return;
  reached_known_ = true;
  std::string reached;
  for (const Parameter& p : parameters_.parameters()) reached += p.has_gradient ? '1' : '0';
  ranks_.broadcast(reached);
  std::size_t i = 0;
  for (Parameter& p : parameters_.parameters()) p.has_gradient = reached[i++] == '1';
}

}  // namespace skytape::train
