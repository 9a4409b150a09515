#include "train/step/evaluate.hpp"

#include <algorithm>
#include <chrono>

#include "autograd/tape.hpp"
#include "data/loader.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/kernels/reduce.hpp"
#include "tensor/kernels/softmax.hpp"
#include "train/step/microbatches.hpp"

namespace skytape::train {
namespace {

/// Hides tokens of a batch, the same ones of an example in every pass; every target counts one.
/// Returns their number.
std::int64_t hide_for_evaluation(data::Batch& batch, data::MaskingOptions masking) {
  masking.seed = fork(Random{masking.seed, {}}, Purpose::evaluate).key;
  hide_tokens(batch, masking);
  std::int64_t count = 0;
  for (std::vector<float>& weights : batch.target_weight) {
    for (float& weight : weights) {
      count += weight > 0;
      weight = weight > 0 ? 1.0f : 0.0f;
    }
  }
  return count;
}

Device device_of(const nn::Model& model) {
  return model.parameters().parameters().front().value.device();
}

}  // namespace

Evaluator::Evaluator(const nn::Model& model, bool graphs)
    : model_(model), inputs_(device_of(model)), graphs_(device_of(model), graphs) {
  // f32 counts whole examples exactly up to 2^24.
  sums_ = Tensor::zeros({2}, DType::f32, device_of(model));
}

/// Adds the microbatch's summed loss and number of correct answers to sums_.
void Evaluator::submit(std::size_t microbatch, std::uint64_t seed) {
  const Feed feed = inputs_.feed(microbatch);
  nn::StepContext context;
  context.random = {seed, inputs_.step()};
  context.first_example = inputs_.microbatches()[microbatch].first;
  context.fewest_tokens = feed.fewest_tokens;

  Tape tape(Tape::Mode::eval);
  Tensor loss, correct;  // sums over the microbatch
  if (model_.config().objective == nn::Objective::predict_masked) {
    const nn::Scored scored = model_.masked(tape, feed.input, feed.targets, context);
    loss = scored.loss.value();
    correct = scored.correct;
  } else {
    const Tensor logits = model_.logits(tape, feed.input, context).value();  // [B, C]
    loss = tensor::sum_all(tensor::cross_entropy(logits, feed.labels).first);
    correct = tensor::sum_all(tensor::correct(logits, feed.labels));
  }
  Tensor loss_sum = sums_.slice(0, 1);
  Tensor correct_sum = sums_.slice(1, 2);
  tensor::accumulate(loss_sum, loss.reshape({1}));
  tensor::accumulate(correct_sum, correct.reshape({1}));
}

Evaluation Evaluator::operator()(const data::Dataset& split, data::BatchOptions batches,
                                 const EvaluateOptions& options) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  const std::int64_t total =
      options.examples > 0 ? std::min(options.examples, split.size()) : split.size();
  batches.group_by_length = false;
  data::Loader loader(data::BatchPass(split, batches, total));

  sums_.fill(0);
  Evaluation result;
  std::int64_t counted = 0;  // examples, or hidden tokens
  data::Batch hidden;        // with tokens hidden
  while (const data::Batch* batch = loader.next()) {
    if (options.masking) {
      hidden = *batch;
      counted += hide_for_evaluation(hidden, *options.masking);
      batch = &hidden;
    } else {
      counted += batch->size;
    }
    inputs_.send(*batch, microbatches_of(*batch, {1, options.positions}), {result.examples, {}});
    for (std::size_t i = 0; i < inputs_.microbatches().size(); ++i) {
      StepGraphs::Layout layout = inputs_.layout(i);
      layout.push_back(static_cast<std::int64_t>(options.seed));  // an argument of kernels
      graphs_.run(layout, [&, i] { submit(i, options.seed); });
    }
    result.examples += batch->size;
    if (options.progress) options.progress(result.examples, total);
    if (options.stop && options.stop()) {
      result.interrupted = result.examples < total;
      break;
    }
  }
  const std::vector<double> values = sums_.to_vector();
  const auto count = static_cast<double>(std::max<std::int64_t>(1, counted));
  result.loss = values[0] / count;
  result.accuracy = values[1] / count;
  result.waited_seconds = loader.waited_seconds();
  result.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return result;
}

Evaluation evaluate(const nn::Model& model, const data::Dataset& split,
                    const data::BatchOptions& batches, const EvaluateOptions& options) {
  return Evaluator(model)(split, batches, options);
}

}  // namespace skytape::train
