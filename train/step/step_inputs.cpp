#include "train/step/step_inputs.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <utility>

#include "data/masking.hpp"
#include "tensor/core/error.hpp"
#include "tensor/core/tensor.hpp"
#include "tensor/gemm/precision.hpp"

namespace skytape::train {
namespace {

static_assert(data::kMaxSequences == nn::kMaxSequences, "a batch's sequences are the model's");

constexpr std::int64_t kAlignment = 64;  // of a microbatch's arrays, for vector loads

/// The numbers before the microbatches. Of each of these follow ids and mask of each sequence,
/// labels, and targets of each sequence.
struct alignas(kAlignment) Header {
  std::array<double, 4> hyper;  // AdamW's numbers
  std::int32_t step;
  std::array<std::int32_t, nn::kMaxSequences> fewest;  // tokens of each sequence
};

/// Returns the fewest tokens of an example that has some; 0 if none has.
std::int32_t fewest_tokens(const std::vector<std::int32_t>& tokens) {
  std::int32_t fewest = 0;
  for (const std::int32_t count : tokens) {
    if (count > 0 && (fewest == 0 || count < fewest)) fewest = count;
  }
  return fewest;
}

std::int64_t align(std::int64_t bytes) { return ceil_div(bytes, kAlignment) * kAlignment; }

/// The offsets of the arrays of a microbatch, in bytes from its own start; each entry has four.
/// `width` positions, of which `rate` have targets.
struct Places {
  std::array<std::int64_t, nn::kMaxSequences> ids{}, mask{};                               // [B, N]
  std::int64_t labels = 0;                                                                 // [B]
  std::array<std::int64_t, nn::kMaxSequences> target_at{}, target_ids{}, target_weight{};  // [B, P]
  std::int64_t targets = 0;                                                                // P
  std::int64_t end = 0;
};

Places places_of(std::int64_t examples, std::int64_t width, std::int64_t sequences, double rate) {
  Places places;
  const auto add = [&](std::int64_t columns) {
    return std::exchange(places.end, places.end + align(4 * examples * columns));
  };
  for (std::size_t t = 0; t < static_cast<std::size_t>(sequences); ++t) {
    places.ids[t] = add(width);
    places.mask[t] = add(width);
  }
  places.labels = add(1);
  if (rate == 0) return places;
  // A narrow microbatch has no room for more targets than its width can have.
  places.targets = data::most_targets(rate, width);
  for (std::size_t t = 0; t < static_cast<std::size_t>(sequences); ++t) {
    places.target_at[t] = add(places.targets);
    places.target_ids[t] = add(places.targets);
    places.target_weight[t] = add(places.targets);
  }
  return places;
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

void write_microbatch(const data::Batch& batch, const Microbatch& microbatch, const Places& places,
                      std::byte* const to) {
  for (std::size_t t = 0; t < static_cast<std::size_t>(batch.sequences); ++t) {
    write_rows(batch.ids[t], batch.width, microbatch, microbatch.width, to + places.ids[t]);
    write_rows(batch.mask[t], batch.width, microbatch, microbatch.width, to + places.mask[t]);
  }
  write_rows(batch.labels, 1, microbatch, 1, to + places.labels);
  if (places.targets == 0) return;
  for (std::size_t t = 0; t < static_cast<std::size_t>(batch.sequences); ++t) {
    const auto write = [&](const auto& cells, std::int64_t at) {
      write_rows(cells, batch.targets, microbatch, places.targets, to + at);
    };
    write(batch.target_at[t], places.target_at[t]);
    write(batch.target_ids[t], places.target_ids[t]);
    write(batch.target_weight[t], places.target_weight[t]);
  }
}

}  // namespace

/// Room for microbatches of the widest batch, so that each stays where it is.
void StepInputs::reserve(const data::Batch& batch, const std::vector<Microbatch>& microbatches) {
  begins_.clear();
  std::int64_t end = sizeof(Header);
  for (const Microbatch& microbatch : microbatches) {
    begins_.push_back(end);
    end += places_of(std::ssize(microbatch.rows), std::max(microbatch.width, batch.widest),
                     batch.sequences, batch.target_rate)
               .end;
  }
  if (static_cast<std::size_t>(end) <= capacity_) return;
  capacity_ = static_cast<std::size_t>(end);
  staging_ = std::make_unique<Staging>(capacity_, device_);
  ++stagings_;
}

void StepInputs::upload(const data::Batch& batch, std::vector<Microbatch> microbatches,
                        const StepNumbers& numbers) {
  reserve(batch, microbatches);
  microbatches_ = std::move(microbatches);
  sequences_ = batch.sequences;
  examples_ = batch.size;
  target_rate_ = batch.target_rate;
  std::byte* const to = staging_->host();
  Header header{numbers.hyper, static_cast<std::int32_t>(numbers.step), {}};
  for (std::size_t t = 0; t < static_cast<std::size_t>(sequences_); ++t) {
    header.fewest[t] = fewest_tokens(batch.unmasked[t]);
  }
  std::memcpy(to, &header, sizeof(header));
  std::int64_t end = sizeof(Header);
  for (std::size_t i = 0; i < microbatches_.size(); ++i) {
    const Microbatch& microbatch = microbatches_[i];
    const Places places =
        places_of(std::ssize(microbatch.rows), microbatch.width, sequences_, target_rate_);
    write_microbatch(batch, microbatch, places, to + begins_[i]);
    end = begins_[i] + places.end;
  }
  staging_->send(static_cast<std::size_t>(end));
}

DeviceBatch StepInputs::device_batch(std::size_t index) const {
  const std::int64_t width = microbatches_.at(index).width;             // N
  const std::int64_t examples = std::ssize(microbatches_[index].rows);  // B
  const Places places = places_of(examples, width, sequences_, target_rate_);
  const auto view = [&](std::int64_t at, const Shape& shape, DType dtype) {
    return staging_->place().view(begins_[index] + at, shape, dtype);
  };
  DeviceBatch batch;
  for (std::size_t t = 0; t < static_cast<std::size_t>(sequences_); ++t) {
    batch.input.ids[t] = view(places.ids[t], {examples, width}, DType::i32);
    batch.input.mask[t] = view(places.mask[t], {examples, width}, DType::f32);
    batch.fewest_tokens[t] = staging_->place().view(
        offsetof(Header, fewest) + t * sizeof(std::int32_t), {1}, DType::i32);
    if (places.targets == 0) continue;
    const Shape shape = {examples, places.targets};
    batch.targets.at[t] = view(places.target_at[t], shape, DType::i32);
    batch.targets.ids[t] = view(places.target_ids[t], shape, DType::i32);
    batch.targets.weight[t] = view(places.target_weight[t], shape, DType::f32);
  }
  batch.labels = view(places.labels, {examples}, DType::i32);
  return batch;
}

Tensor StepInputs::step() const {
  return staging_->place().view(offsetof(Header, step), {1}, DType::i32);
}
Tensor StepInputs::hyper() const {
  return staging_->place().view(offsetof(Header, hyper), {4}, DType::f64);
}

std::vector<std::int64_t> StepInputs::layout(std::size_t index) const {
  const Microbatch& microbatch = microbatches_.at(index);
  return {static_cast<std::int64_t>(precision(device_)),
          stagings_,
          sequences_,
          examples_,
          data::most_targets(target_rate_, microbatch.width),
          std::ssize(microbatches_),
          static_cast<std::int64_t>(index),
          begins_[index],
          microbatch.first,
          std::ssize(microbatch.rows),
          microbatch.width};
}

DeviceBatch upload(const data::Batch& batch, const Microbatch& microbatch, Device device) {
  StepInputs inputs(device);
  inputs.upload(batch, {microbatch}, {});
  return inputs.device_batch(0);
}

DeviceBatch upload(const data::Batch& batch, Device device) {
  Microbatch all{std::vector<std::int64_t>(static_cast<std::size_t>(batch.size)), 0, batch.width};
  std::iota(all.rows.begin(), all.rows.end(), 0);
  return upload(batch, all, device);
}

}  // namespace skytape::train
