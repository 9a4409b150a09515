#include "train/trainer.hpp"

#include <algorithm>
#include <cmath>

#include "autograd/ops.hpp"
#include "tensor/elementwise.hpp"
#include "tensor/reduce.hpp"
#include "tensor/softmax.hpp"

namespace skytape::train {

Feed upload(const data::Batch& batch, std::int64_t begin, std::int64_t end, Device device) {
  ENSURE(0 <= begin && begin < end && end <= batch.size, "upload: examples [", begin, ", ", end,
         ") of a batch of ", batch.size);
  const std::int64_t count = end - begin;
  Feed feed;
  for (int t = 0; t < batch.towers; ++t) {
    const auto tower = static_cast<std::size_t>(t);
    const auto from = static_cast<std::size_t>(begin * batch.width);
    const auto size = static_cast<std::size_t>(count * batch.width);
    const Shape shape{count, batch.width};
    feed.input.ids[tower] =
        Tensor::from(std::span<const std::int32_t>(batch.ids[tower]).subspan(from, size), shape,
                     DType::i32, device);  // [B, N]
    feed.input.mask[tower] =
        Tensor::from(std::span<const float>(batch.mask[tower]).subspan(from, size), shape,
                     DType::f32, device);  // [B, N]
  }
  feed.labels =
      Tensor::from(std::span<const std::int32_t>(batch.labels)
                       .subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(count)),
                   {count}, DType::i32, device);
  return feed;
}

std::array<std::int64_t, nn::kMaxTowers> fewest_tokens(const data::Batch& batch) {
  std::array<std::int64_t, nn::kMaxTowers> fewest = {-1, -1};
  for (int t = 0; t < batch.towers; ++t) {
    const std::vector<std::int32_t>& counts = batch.unmasked[static_cast<std::size_t>(t)];
    fewest[static_cast<std::size_t>(t)] = *std::min_element(counts.begin(), counts.end());
  }
  return fewest;
}

Trainer::Trainer(nn::Model& model, const nn::AdamWConfig& adamw, const nn::OneCycle& schedule,
                 std::uint64_t seed, std::int64_t accumulate)
    : model_(model), optimizer_(model.parameters(), adamw, schedule), accumulate_(accumulate) {
  const Device device = model.parameters().values().device();
  random_ = {seed, Tensor::zeros({1}, DType::i32, device)};
  sums_ = Tensor::zeros({2}, DType::f32, device);
}

void Trainer::step(const data::Batch& batch) {
  random_.step.fill(static_cast<double>(optimizer_.steps_done()));
  nn::StepContext context;
  context.training = true;
  context.random = random_;
  context.fewest_tokens = fewest_tokens(batch);

  model_.parameters().zero_gradients();
  for (std::int64_t c = 0; c < accumulate_; ++c) {
    const std::int64_t begin = batch.size * c / accumulate_;
    const std::int64_t end = batch.size * (c + 1) / accumulate_;
    context.first_example = begin;
    if (begin < end) chunk(batch, begin, end, context);
  }
  optimizer_.step();
  ++summed_steps_;
}

void Trainer::chunk(const data::Batch& batch, std::int64_t begin, std::int64_t end,
                    const nn::StepContext& context) {
  const Feed feed = upload(batch, begin, end, sums_.device());
  const double share = static_cast<double>(end - begin) / static_cast<double>(batch.size);

  Tape tape;
  tape.check_finite(check_finite_);
  const Var logits = model_.logits(tape, feed.input, context);          // [B, C]
  const Tensor correct = tensor::correct(logits.value(), feed.labels);  // [B]
  Var loss = cross_entropy(logits, feed.labels);                        // scalar
  if (end - begin != batch.size) loss = affine(loss, share);
  tape.backward(loss);

  Tensor loss_sum = sums_.slice(0, 1);
  Tensor correct_sum = sums_.slice(1, 2);
  tensor::accumulate(loss_sum, loss.value().reshape({1}));
  tensor::accumulate(correct_sum, tensor::sum_all(correct).reshape({1}),
                     1.0 / static_cast<double>(batch.size));
}

TrainFigures Trainer::take_figures() {
  const std::vector<double> sums = sums_.to_vector();
  const auto steps = static_cast<double>(std::max<std::int64_t>(1, summed_steps_));
  const TrainFigures figures{sums[0] / steps, sums[1] / steps, summed_steps_};
  sums_.fill(0);
  summed_steps_ = 0;
  return figures;
}

bool Trainer::figures_finite() const { return tensor::all_finite(sums_); }

}  // namespace skytape::train
