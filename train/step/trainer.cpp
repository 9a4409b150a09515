#include "train/step/trainer.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "autograd/ops.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/timing/kernel_times.hpp"

namespace skytape::train {

Trainer::Trainer(nn::Model& model, const nn::AdamWConfig& adamw, const nn::Schedule& schedule,
                 std::uint64_t seed, const MicrobatchLimits& limits, bool graphs, StepShare share)
    : model_(model),
      optimizer_(model.parameters(), adamw, schedule),
      seed_(seed),
      limits_(limits),
      inputs_(model.parameters().values().device()),
      graphs_(model.parameters().values().device(), graphs),
      sum_(model.parameters(), std::move(share)) {
  metric_sums_ = Tensor::zeros({2}, DType::f32, model.parameters().values().device());
}

void Trainer::step(const data::Batch& batch) {
  const Clock::time_point start = Clock::now();
  inputs_.upload(batch, sum_.begin(microbatches_of(batch, limits_)),
                 {optimizer_.steps_done(), optimizer_.next_hyper()});
  add_time("data", start);
  for (std::size_t i = 0; i < inputs_.microbatches().size(); ++i) {
    if (check_finite_ || seconds_ != nullptr) {
      graphs_.run_directly([=, this] { submit(i); });
    } else {
      graphs_.run(inputs_.layout(i), [=, this] { submit(i); });
    }
  }
  if (sum_.needs_exchange()) {
    const Clock::time_point computed = Clock::now();
    sum_.exchange();
    add_time("exchange", computed);
    update();
  }
  optimizer_.advance();
  ++summed_steps_;
}

/// The work of a microbatch and, after the last one, the update: the whole step where a batch is
/// one microbatch. It reads what changes from step to step from inputs_, on the device.
void Trainer::submit(std::size_t index) {
  model_.parameters().zero_gradients();
  add_microbatch(index);
  if (!sum_.needs_exchange() && index + 1 == inputs_.microbatches().size()) update();
}

void Trainer::update() {
  const Clock::time_point start = Clock::now();
  if (!sum_.is_one_part()) {
    model_.parameters().gradients().copy_from(sum_.gradients());
    tensor::accumulate(metric_sums_, sum_.metrics());
  }
  optimizer_.update(inputs_.hyper());
  model_.parameters().update_averages();
  add_time("optimiser", start);
}

void Trainer::add_microbatch(std::size_t index) {
  const Microbatch& microbatch = inputs_.microbatches()[index];
  const DeviceBatch batch = inputs_.device_batch(index);
  nn::StepContext context;
  context.training = true;
  context.random = {seed_, inputs_.step()};
  context.first_example = microbatch.first;
  context.fewest_tokens = batch.fewest_tokens;

  Tape tape;
  if (check_finite_) tape.observe(finite_check());
  if (seconds_ != nullptr) tape.observe(op_timer(*seconds_));
  try {
    const nn::Scored scored = score(tape, index, batch, context);
    sum_.overlap(tape, index);
    tape.backward(scored.loss);

    if (sum_.is_one_part()) {
      std::array<tensor::Addition, 2> metrics = {
          {{metric_sums_.slice(0, 1), scored.loss.value().reshape({1})},
           {metric_sums_.slice(1, 2), scored.correct.reshape({1})}}};
      tensor::accumulate_all(metrics);
    } else {
      sum_.add(index, scored.loss.value(), scored.correct);
    }
  } catch (const NonFiniteError&) {
    throw;
  } catch (const Error& error) {
    if (!capturing()) throw;
    throw Error(join("while a training step is captured, ", tape.position(), ": ", error.what()));
  }
}

/// Loss and correct share of a microbatch, as its parts of the whole batch's.
nn::Scored Trainer::score(Tape& tape, std::size_t index, const DeviceBatch& batch,
                          const nn::StepContext& context) const {
  if (model_.config().objective == nn::Objective::predict_masked) {
    return model_.masked_loss(tape, batch.input, batch.targets, context);
  }
  const auto examples = static_cast<double>(inputs_.examples());  // of all microbatches
  nn::Scored scored = model_.class_loss(tape, batch.input, batch.labels, context, examples);
  const auto here = static_cast<double>(inputs_.microbatches()[index].rows.size());
  if (here < examples) {
    // `correct` is divided by all examples already, the loss is the part's mean.
    scored.loss = affine(scored.loss, here / examples);
  }
  return scored;
}

void Trainer::add_time(const char* part, Clock::time_point start) {
  if (seconds_ == nullptr) return;
  synchronize(metric_sums_.device());
  end_traced_part(part);
  (*seconds_)[part] += std::chrono::duration<double>(Clock::now() - start).count();
}

TrainMetrics Trainer::take_metrics() {
  const std::vector<double> sums = metric_sums_.to_vector();
  const auto steps = static_cast<double>(std::max<std::int64_t>(1, summed_steps_));
  const TrainMetrics metrics{sums[0] / steps, sums[1] / steps, summed_steps_};
  metric_sums_.fill(0);
  summed_steps_ = 0;
  return metrics;
}

bool Trainer::metrics_finite() const { return tensor::all_finite(metric_sums_); }

}  // namespace skytape::train
