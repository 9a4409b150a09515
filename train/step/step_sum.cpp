#include "train/step/step_sum.hpp"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "tensor/kernels/elementwise.hpp"

namespace skytape::train {
namespace {

constexpr std::int64_t kMetrics = 2;  // loss, correct share

}  // namespace

StepSum::StepSum(std::int64_t gradients, Device device, StepShare share)
    : count_(gradients), device_(device), share_(std::move(share)) {}

std::vector<Microbatch> StepSum::begin(std::vector<Microbatch> microbatches) {
  microbatches_ = std::ssize(microbatches);
  if (is_one_part()) return microbatches;
  std::vector<Microbatch> mine;
  for (auto i = static_cast<std::size_t>(share_.share.part); i < microbatches.size();
       i += static_cast<std::size_t>(share_.share.parts)) {
    mine.push_back(std::move(microbatches[i]));
  }
  const std::int64_t rows = share_.in_order ? std::max<std::int64_t>(1, std::ssize(mine)) : 1;
  if (!rows_.defined() || rows_.size(0) < rows) {
    // Captured steps know the rows by their address.
    ENSURE(!rows_.defined() || device_ == Device::cpu, "StepSum: a GPU's step has ", rows,
           " microbatches where an earlier one had ", rows_.size(0));
    rows_ = Tensor::zeros({rows, count_ + kMetrics}, DType::f32, device_);
  }
  if (!total_.defined()) {
    total_ = share_.in_order ? Tensor::zeros({count_ + kMetrics}, DType::f32, device_) : rows_[0];
  }
  if (mine.empty()) rows_.fill(0);
  return mine;
}

void StepSum::add(std::size_t index, const Tensor& gradients, const Tensor& loss,
                  const Tensor& correct) {
  Tensor row = rows_[share_.in_order ? static_cast<std::int64_t>(index) : 0];
  const bool fresh = share_.in_order || index == 0;
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
  const std::int64_t mine = share_.in_order ? share_.share.of(microbatches_) : 1;
  share_.sum(rows_.slice(0, mine), microbatches_, total_);
}

}  // namespace skytape::train
