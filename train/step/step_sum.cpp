#include "train/step/step_sum.hpp"

#include <algorithm>
#include <utility>

#include "autograd/observers.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "train/step/buckets.hpp"

namespace skytape::train {
namespace {

constexpr std::int64_t kMetrics = 2;  // loss, correct share

}  // namespace

StepSum::StepSum(ParameterStore& parameters, StepShare share)
    : parameters_(parameters),
      count_(parameters.gradients().numel()),
      device_(parameters.gradients().device()),
      share_(std::move(share)),
      buckets_(buckets_of(parameters, count_ + kMetrics, share_.bucket_size)) {}

std::vector<Microbatch> StepSum::begin(std::vector<Microbatch> microbatches) {
  microbatches_ = std::ssize(microbatches);
  begun_ = 0;
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

void StepSum::overlap(Tape& tape, std::size_t index) {
  const bool last = static_cast<std::int64_t>(index) + 1 == share_.share.of(microbatches_);
  if (!last || buckets_.size() == 1) return;
  tape.observe([this, &tape, index, first = first_readers(tape, buckets_)](const TapeEvent& event) {
    if (event.kind != TapeEvent::Kind::backward) return;
    while (event.node <= first[begun_]) {
      tape.add_waiting_gradients();
      add_gradients(index, buckets_[begun_]);
      begin_next();
    }
  });
}

void StepSum::add(std::size_t index, const Tensor& loss, const Tensor& correct) {
  for (std::size_t b = begun_; b < buckets_.size(); ++b) add_gradients(index, buckets_[b]);
  add_to(index, count_, loss);
  add_to(index, count_ + 1, correct);
}

/// Adds the gradients of a bucket to those of the process, or keeps them where the order of all
/// counts.
void StepSum::add_gradients(std::size_t index, Bucket bucket) {
  const std::int64_t end = std::min(bucket.end, count_);
  add_to(index, bucket.begin, parameters_.gradients().slice(bucket.begin, end));
}

void StepSum::add_to(std::size_t index, std::int64_t begin, const Tensor& numbers) {
  const Tensor row = rows_[share_.in_order ? static_cast<std::int64_t>(index) : 0];
  Tensor place = row.slice(begin, begin + numbers.numel());
  const Tensor flat = numbers.reshape({numbers.numel()});
  if (share_.in_order || index == 0) {
    place.copy_from(flat);
  } else {
    tensor::accumulate(place, flat);
  }
}

void StepSum::begin_next() {
  const std::int64_t mine = share_.in_order ? share_.share.of(microbatches_) : 1;
  share_.begin(rows_.slice(0, mine), microbatches_, total_, buckets_[begun_]);
  ++begun_;
}

void StepSum::exchange() {
  while (begun_ < buckets_.size()) begin_next();
  share_.finish();
}

}  // namespace skytape::train
