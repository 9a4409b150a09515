#include "train/step/evaluate.hpp"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <vector>

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

/// Every batch of a pass over the first `total` examples that is this rank's turn.
data::Loader::Fill pass(const data::Dataset& split, const data::BatchOptions& options,
                        std::int64_t total, const Ranks& ranks) {
  return [=, at = ranks.rank() * options.batch, step = ranks.size() * options.batch,
          rows = std::vector<std::int64_t>()](data::Batch& batch) mutable {
    if (at >= total) return false;
    rows.resize(static_cast<std::size_t>(std::min(options.batch, total - at)));
    std::iota(rows.begin(), rows.end(), at);
    data::collate(split, rows, options, batch);
    at += step;
    return true;
  };
}

Device device_of(const nn::Model& model) {
  return model.parameters().parameters().front().value.device();
}

}  // namespace

Evaluator::Evaluator(const nn::Model& model, bool graphs, const Ranks& ranks)
    : model_(model), ranks_(ranks), inputs_(device_of(model)), graphs_(device_of(model), graphs) {
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

/// Sets sums_ to those of a batch whose first example has that number. Returns how many examples,
/// or hidden tokens, it has.
std::int64_t Evaluator::add_batch(const data::Batch& read, std::int64_t first,
                                  const EvaluateOptions& options) {
  data::Batch hidden;  // with tokens hidden
  std::int64_t count = read.size;
  if (options.masking) {
    hidden = read;
    count = hide_for_evaluation(hidden, *options.masking);
  }
  const data::Batch& batch = options.masking ? hidden : read;
  sums_.fill(0);
  inputs_.send(batch, microbatches_of(batch, {1, options.positions}), {first, {}});
  for (std::size_t i = 0; i < inputs_.microbatches().size(); ++i) {
    StepGraphs::Layout layout = inputs_.layout(i);
    layout.push_back(static_cast<std::int64_t>(options.seed));  // an argument of kernels
    graphs_.run(layout, [&, i] { submit(i, options.seed); });
  }
  return count;
}

Evaluation Evaluator::operator()(const data::Dataset& split, data::BatchOptions batches,
                                 const EvaluateOptions& options) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  const std::int64_t total =
      options.examples > 0 ? std::min(options.examples, split.size()) : split.size();
  batches.group_by_length = false;
  const std::int64_t a_round = batches.batch * ranks_.size();  // examples
  const std::int64_t rounds = (total + a_round - 1) / a_round;
  data::Loader loader(pass(split, batches, total, ranks_));

  // This rank's batches: loss, correct answers; and how much they count.
  Tensor sums = Tensor::zeros({rounds, 2}, DType::f32, sums_.device());
  std::vector<double> counts(static_cast<std::size_t>(rounds));
  Evaluation result;
  for (std::int64_t round = 0; round < rounds && !result.interrupted; ++round) {
    if (const data::Batch* batch = loader.next()) {
      const std::int64_t first = round * a_round + ranks_.rank() * batches.batch;
      counts[static_cast<std::size_t>(round)] =
          static_cast<double>(add_batch(*batch, first, options));
      Tensor place = sums[round];
      place.copy_from(sums_);
    }
    result.examples = std::min(total, (round + 1) * a_round);
    if (options.progress) options.progress(result.examples, total);
    result.interrupted = options.stop && options.stop() && result.examples < total;
  }

  // In the order of the batches, whoever computed them.
  std::vector<double> mine = sums.to_vector();  // [rounds, 2]
  mine.insert(mine.end(), counts.begin(), counts.end());
  const std::vector<std::vector<double>> all = ranks_.gather(mine);
  double loss = 0, correct = 0, count = 0;
  for (std::size_t round = 0; round < counts.size(); ++round) {
    for (const std::vector<double>& of_rank : all) {
      loss += of_rank[2 * round];
      correct += of_rank[2 * round + 1];
      count += of_rank[2 * counts.size() + round];
    }
  }
  result.loss = loss / std::max(1.0, count);
  result.accuracy = correct / std::max(1.0, count);
  result.waited_seconds = loader.waited_seconds();
  result.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return result;
}

Evaluation evaluate(const nn::Model& model, const data::Dataset& split,
                    const data::BatchOptions& batches, const EvaluateOptions& options) {
  return Evaluator(model)(split, batches, options);
}

}  // namespace skytape::train
