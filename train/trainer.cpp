#include "train/trainer.hpp"

#include <algorithm>

#include "autograd/ops.hpp"
#include "tensor/elementwise.hpp"
#include "tensor/reduce.hpp"
#include "tensor/softmax.hpp"

namespace skytape::train {

Trainer::Trainer(nn::Model& model, const nn::AdamWConfig& adamw, const nn::OneCycle& schedule,
                 std::uint64_t seed, const ChunkLimits& limits)
    : model_(model), optimizer_(model.parameters(), adamw, schedule), limits_(limits) {
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
  for (const Chunk& chunk : chunks_of(batch, limits_)) add_chunk(batch, chunk, context);
  const Clock::time_point start = Clock::now();
  optimizer_.step();
  add_time("optimiser", start);
  ++summed_steps_;
}

void Trainer::add_chunk(const data::Batch& batch, const Chunk& chunk, nn::StepContext& context) {
  const Clock::time_point start = Clock::now();
  const Feed feed = upload(batch, chunk, sums_.device());
  add_time("data", start);
  const auto examples = static_cast<std::int64_t>(chunk.rows.size());
  const double share = static_cast<double>(examples) / static_cast<double>(batch.size);
  context.first_example = chunk.first;

  Tape tape;
  tape.check_finite(check_finite_);
  if (seconds_ != nullptr) tape.time_ops(*seconds_);
  const Var logits = model_.logits(tape, feed.input, context);          // [B, C]
  const Tensor correct = tensor::correct(logits.value(), feed.labels);  // [B]
  Var loss = cross_entropy(logits, feed.labels);                        // scalar
  if (examples != batch.size) loss = affine(loss, share);
  tape.backward(loss);

  Tensor loss_sum = sums_.slice(0, 1);
  Tensor correct_sum = sums_.slice(1, 2);
  tensor::accumulate(loss_sum, loss.value().reshape({1}));
  tensor::accumulate(correct_sum, tensor::sum_all(correct).reshape({1}),
                     1.0 / static_cast<double>(batch.size));
}

void Trainer::add_time(const char* part, Clock::time_point start) {
  if (seconds_ == nullptr) return;
  synchronize(sums_.device());
  (*seconds_)[part] += std::chrono::duration<double>(Clock::now() - start).count();
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
