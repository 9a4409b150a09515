#include "train/step/step_inputs.hpp"

#include <algorithm>
#include <cstring>

#include "data/masking.hpp"
#include "tensor/core/error.hpp"
#include "tensor/gemm/precision.hpp"

namespace skytape::train {
namespace {

// Bytes from the start: AdamW's numbers, the step, the fewest tokens of each tower, the
// microbatches. Of a microbatch: ids and mask of each tower, labels, targets of each tower.
constexpr std::int64_t kHyper = 0, kStep = 32, kFewest = 36, kMicrobatches = 64;
constexpr std::int64_t kAlignment = 64;  // of a microbatch's arrays, for vector loads

std::int64_t align(std::int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// Bytes of ids, or of a mask; and of labels.
std::int64_t cell_bytes(const Microbatch& microbatch) {
  return align(4 * std::ssize(microbatch.rows) * microbatch.width);
}
std::int64_t label_bytes(const Microbatch& microbatch) {
  return align(4 * std::ssize(microbatch.rows));
}
/// Bytes of one array of targets, where `rate` of the tokens have some.
std::int64_t target_bytes(const Microbatch& microbatch, double rate) {
  return align(4 * std::ssize(microbatch.rows) * data::most_targets(rate, microbatch.width));
}
std::int64_t microbatch_bytes(const Microbatch& microbatch, std::int64_t towers, double rate) {
  return towers * (2 * cell_bytes(microbatch) + 3 * target_bytes(microbatch, rate)) +
         label_bytes(microbatch);
}

/// Columns [0, width) of the chosen rows of a [B, N] array, one behind the other.
template <class T> void write_rows(const std::vector<T>& cells, std::int64_t columns,
                                   const Microbatch& microbatch, std::int64_t width,
                                   std::byte* to) {
  const auto bytes = static_cast<std::size_t>(width) * sizeof(T);
  for (const std::int64_t row : microbatch.rows) {
    std::memcpy(to, cells.data() + row * columns, bytes);
    to += bytes;
  }
}

void write_microbatch(const data::Batch& batch, const Microbatch& microbatch,
                      std::byte* const start) {
  std::byte* to = start;
  for (std::size_t t = 0; t < static_cast<std::size_t>(batch.towers); ++t) {
    write_rows(batch.ids[t], batch.width, microbatch, microbatch.width, to);
    write_rows(batch.mask[t], batch.width, microbatch, microbatch.width,
               to + cell_bytes(microbatch));
    to += 2 * cell_bytes(microbatch);
  }
  for (const std::int64_t row : microbatch.rows) {
    std::memcpy(to, &batch.labels[static_cast<std::size_t>(row)], sizeof(std::int32_t));
    to += sizeof(std::int32_t);
  }
  if (batch.target_rate == 0) return;
  to = start + microbatch_bytes(microbatch, batch.towers, 0);
  // A narrow microbatch has no room for more targets than its width can have.
  const std::int64_t room = data::most_targets(batch.target_rate, microbatch.width);
  for (std::size_t t = 0; t < static_cast<std::size_t>(batch.towers); ++t) {
    const std::int64_t step = target_bytes(microbatch, batch.target_rate);
    write_rows(batch.target_at[t], batch.targets, microbatch, room, to);
    write_rows(batch.target_ids[t], batch.targets, microbatch, room, to + step);
    write_rows(batch.target_weight[t], batch.targets, microbatch, room, to + 2 * step);
    to += 3 * step;
  }
}

}  // namespace

/// Room for microbatches of full width, so that each stays where it is.
void StepInputs::reserve(const data::Batch& batch, const std::vector<Microbatch>& microbatches) {
  begins_.clear();
  std::int64_t widest = kMicrobatches;
  for (Microbatch microbatch : microbatches) {
    begins_.push_back(widest);
    microbatch.width = std::max(microbatch.width, batch.nominal_length);
    widest += microbatch_bytes(microbatch, batch.towers, batch.target_rate);
  }
  if (static_cast<std::size_t>(widest) <= capacity_) return;
  capacity_ = static_cast<std::size_t>(widest);
  staging_ = std::make_unique<Staging>(capacity_, device_);
  ++places_;
}

void StepInputs::send(const data::Batch& batch, std::vector<Microbatch> microbatches,
                      const StepNumbers& numbers) {
  reserve(batch, microbatches);
  microbatches_ = std::move(microbatches);
  towers_ = batch.towers;
  examples_ = batch.size;
  target_rate_ = batch.target_rate;
  std::byte* const to = staging_->host();
  std::memcpy(to + kHyper, numbers.hyper.data(), sizeof(numbers.hyper));
  const auto step = static_cast<std::int32_t>(numbers.step);
  std::memcpy(to + kStep, &step, sizeof(step));
  for (std::int64_t t = 0; t < towers_; ++t) {
    const std::vector<std::int32_t>& counts = batch.unmasked[static_cast<std::size_t>(t)];
    const std::int32_t fewest = *std::min_element(counts.begin(), counts.end());
    std::memcpy(to + kFewest + 4 * t, &fewest, sizeof(fewest));
  }
  std::int64_t end = kMicrobatches;
  for (std::size_t i = 0; i < microbatches_.size(); ++i) {
    write_microbatch(batch, microbatches_[i], to + begins_[i]);
    end = begins_[i] + microbatch_bytes(microbatches_[i], towers_, target_rate_);
  }
  staging_->send(static_cast<std::size_t>(end));
}

Feed StepInputs::feed(std::size_t index) const {
  const Microbatch& microbatch = microbatches_.at(index);
  const std::int64_t examples = std::ssize(microbatch.rows);
  const Tensor& place = staging_->place();
  std::int64_t at = begins_[index];
  Feed feed;
  for (std::size_t t = 0; t < static_cast<std::size_t>(towers_); ++t) {
    feed.input.ids[t] = place.view(at, {examples, microbatch.width}, DType::i32);
    feed.input.mask[t] =
        place.view(at + cell_bytes(microbatch), {examples, microbatch.width}, DType::f32);
    feed.fewest_tokens[t] = place.view(kFewest + 4 * static_cast<std::int64_t>(t), {1}, DType::i32);
    at += 2 * cell_bytes(microbatch);
  }
  feed.labels = place.view(at, {examples}, DType::i32);
  if (target_rate_ == 0) return feed;
  at = begins_[index] + microbatch_bytes(microbatch, towers_, 0);
  const std::int64_t step = target_bytes(microbatch, target_rate_);
  const std::int64_t room = data::most_targets(target_rate_, microbatch.width);  // P
  for (std::size_t t = 0; t < static_cast<std::size_t>(towers_); ++t) {
    feed.targets.at[t] = place.view(at, {examples, room}, DType::i32);
    feed.targets.ids[t] = place.view(at + step, {examples, room}, DType::i32);
    feed.targets.weight[t] = place.view(at + 2 * step, {examples, room}, DType::f32);
    at += 3 * step;
  }
  return feed;
}

Tensor StepInputs::step() const { return staging_->place().view(kStep, {1}, DType::i32); }
Tensor StepInputs::hyper() const { return staging_->place().view(kHyper, {4}, DType::f64); }

std::vector<std::int64_t> StepInputs::layout(std::size_t index) const {
  const Microbatch& microbatch = microbatches_.at(index);
  return {static_cast<std::int64_t>(precision(device_)),
          places_,
          towers_,
          examples_,
          data::most_targets(target_rate_, microbatch.width),
          std::ssize(microbatches_),
          static_cast<std::int64_t>(index),
          begins_[index],
          microbatch.first,
          std::ssize(microbatch.rows),
          microbatch.width};
}

Feed upload(const data::Batch& batch, const Microbatch& microbatch, Device device) {
  StepInputs inputs(device);
  inputs.send(batch, {microbatch}, {});
  return inputs.feed(0);
}

}  // namespace skytape::train
