#include "train/ranks/gradient_sum.hpp"

#include <chrono>
#include <span>
#include <string>

namespace skytape::train {
namespace {

std::span<float> numbers_of(const Tensor& t) {
  return {t.data<float>(), static_cast<std::size_t>(t.numel())};
}

/// Adds the seconds of its life.
class Timed {
 public:
  explicit Timed(double& seconds) : seconds_(seconds) {}
  ~Timed() { seconds_ += std::chrono::duration<double>(Clock::now() - start_).count(); }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  double& seconds_;
  Clock::time_point start_ = Clock::now();
};

}  // namespace

GradientSum::GradientSum(const Ranks& ranks, ParameterStore& parameters, std::int64_t bucket_size)
    : ranks_(ranks),
      parameters_(parameters),
      in_order_(ranks.reduce_on(parameters.values().device()) == Reduce::ordered),
      bucket_size_(parameters.values().device() == Device::cpu ? bucket_size : 0) {
  const bool on_gpus = parameters.values().device() == Device::cuda && !in_order_;
  if (!ranks.alone() && on_gpus && DeviceSum::available()) {
    device_sum_ = std::make_unique<DeviceSum>(ranks);
  }
}

StepShare GradientSum::share() {
  if (ranks_.alone()) return {};
  return {ranks_.share(), in_order_, bucket_size_,
          [this](const Tensor& rows, std::int64_t microbatches, const Tensor& total,
                 Bucket bucket) { begin(rows, microbatches, total, bucket); },
          [this] { finish(); }};
}

/// Submits the sum where GPUs make it among themselves; else it goes through the hosts, which wait
/// for the device. It is no part of a captured step: NCCL demands that all ranks capture an
/// exchange or none does, and each rank's batches have separate layouts.
void GradientSum::begin(const Tensor& rows, std::int64_t microbatches, const Tensor& total,
                        Bucket bucket) {
  Tensor part = total.slice(bucket.begin, bucket.end);
  if (device_sum_ != nullptr) return device_sum_->submit(part);
  const Timed timed(seconds_);
  const Tensor host = part.to(Device::cpu);  // the tensor itself where it is there
  const std::function<void()> wait =
      in_order_ ? ranks_.begin_sum(numbers_of(rows.to(Device::cpu)), microbatches,
                                   static_cast<std::size_t>(bucket.begin), numbers_of(host))
                : ranks_.begin_sum(numbers_of(host));
  begun_.push_back([wait, host, part]() mutable {
    wait();
    if (part.device() != Device::cpu) part.copy_from(host);
  });
}

void GradientSum::finish() {
  {
    const Timed timed(seconds_);
    for (const std::function<void()>& wait : begun_) wait();
    begun_.clear();
  }
  agree_on_reached();
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
