#include "train/step/step_sum.hpp"

#include <algorithm>
#include <chrono>
#include <initializer_list>
#include <span>

#include "tensor/core/device.hpp"
#include "tensor/core/tensor.hpp"
#include "tensor/kernels/elementwise.hpp"

namespace skytape::train {
namespace {

constexpr std::int64_t kMetrics = 2;  // loss, correct share

std::span<float> numbers_of(const Tensor& t) {
  return {t.data<float>(), static_cast<std::size_t>(t.numel())};
}

}  // namespace

StepSum::StepSum(const Ranks& ranks, std::int64_t gradients, Device device)
    : ranks_(ranks), device_(device), count_(gradients) {
  const std::int64_t size = ranks.size();
  width_ = ceil_div(gradients + kMetrics, size) * size;
  if (!ranks.alone() && device == Device::cuda && !keeps_rows() && DeviceSum::available()) {
    device_sum_ = std::make_unique<DeviceSum>(ranks);
  }
}

bool StepSum::keeps_rows() const {
  return !ranks_.alone() && ranks_.reduce_on(device_) == Reduce::ordered;
}

void StepSum::begin(std::int64_t microbatches) {
  microbatches_ = microbatches;
  if (ranks_.alone() && microbatches == 1) return;  // nothing to add up
  const std::int64_t mine = share_of(microbatches, ranks_.rank(), ranks_.size());
  const std::int64_t rows = keeps_rows() ? std::max<std::int64_t>(1, mine) : 1;
  // Captured steps know the rows by their address; a GPU has as many in every step.
  if (!rows_.defined() || rows_.size(0) < rows) {
    rows_ = Tensor::zeros({rows, width_}, DType::f32, device_);
  }
  if (!total_.defined()) {
    total_ = keeps_rows() ? Tensor::zeros({width_}, DType::f32, device_) : rows_[0];
  }
  if (mine == 0) rows_.fill(0);
}

void StepSum::add(std::size_t index, const Tensor& gradients, const Tensor& loss,
                  const Tensor& correct) {
  Tensor row = rows_[keeps_rows() ? static_cast<std::int64_t>(index) : 0];
  const bool fresh = keeps_rows() || index == 0;
  std::int64_t at = 0;
  for (const Tensor& part : {gradients, loss, correct}) {
    Tensor place = row.slice(at, at + part.numel());
    at += part.numel();
    if (fresh) {
      place.copy_from(part.reshape({part.numel()}));
    } else {
      tensor::accumulate(place, part.reshape({part.numel()}));
    }
  }
}

void StepSum::exchange() {
  if (device_sum_ != nullptr) return device_sum_->submit(total_);
  const auto start = std::chrono::steady_clock::now();
  const bool on_host = device_ == Device::cpu;
  if (keeps_rows()) {
    const std::int64_t mine = share_of(microbatches_, ranks_.rank(), ranks_.size());
    const Tensor rows = rows_.slice(0, mine).to(Device::cpu);
    const Tensor total = on_host ? total_ : Tensor::empty({width_}, DType::f32, Device::cpu);
    ranks_.sum_in_order(numbers_of(rows), microbatches_, numbers_of(total));
    if (!on_host) total_.copy_from(total);
  } else {
    const Tensor total = total_.to(Device::cpu);
    ranks_.sum(numbers_of(total));
    if (!on_host) total_.copy_from(total);
  }
  seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace skytape::train
