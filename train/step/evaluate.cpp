#include "train/step/evaluate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <span>
#include <vector>

#include "autograd/tape.hpp"
#include "data/loader.hpp"
#include "tensor/core/error.hpp"
#include "tensor/core/tensor.hpp"
#include "tensor/kernels/elementwise.hpp"
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

/// The sums that batches add to an evaluation.
struct Tally {
  double loss = 0, correct = 0, count = 0;  // count: of examples, or of hidden tokens
  double unanimous = 0;
  double first_bad = 0;  // number of the first example that is not finite, from 1; 0: none
  std::vector<double> correct_draws;  // [K], of each draw alone

  [[nodiscard]] std::vector<double> numbers() const {
    std::vector<double> all = {loss, correct, count, unanimous, first_bad};
    all.insert(all.end(), correct_draws.begin(), correct_draws.end());
    return all;
  }
  /// Adds numbers(), or all zeros.
  void add(std::span<const double> numbers) {
    loss += numbers[0];
    correct += numbers[1];
    count += numbers[2];
    unanimous += numbers[3];
    if (first_bad == 0) first_bad = numbers[4];
    for (std::size_t k = 0; k < correct_draws.size(); ++k) correct_draws[k] += numbers[5 + k];
  }
};

/// A batch whose results are still on the device, so that the host need not wait for them.
struct Computed {
  std::int64_t number = 0;  // of the pass
  std::int64_t first = 0;   // example of the split that the batch begins with
  double count = 0;
  Tensor results;                    // as Evaluator::results_
  std::vector<std::int64_t> order;   // results[i] belongs to row order[i] of the batch
  std::vector<std::int32_t> labels;  // [B]
};
constexpr std::size_t kMostComputed = 32;  // batches

std::vector<std::int64_t> sorted_rows(const std::vector<Microbatch>& microbatches) {
  std::vector<std::int64_t> rows;
  for (const Microbatch& m : microbatches) rows.insert(rows.end(), m.rows.begin(), m.rows.end());
  return rows;
}

/// Scores f32[K, B, C] of sorted examples as answers in the order of the batch.
std::vector<std::optional<Answer>> answers_in_order(const Tensor& results,
                                                    const std::vector<std::int64_t>& order) {
  const std::vector<double> scores = results.to_vector();
  const auto draws = static_cast<std::size_t>(results.size(0)), rows = order.size();
  const auto classes = static_cast<std::size_t>(results.size(2));
  std::vector<std::optional<Answer>> answers(rows);
  std::vector<double> own(draws * classes);  // [K, C]
  for (std::size_t b = 0; b < rows; ++b) {
    for (std::size_t k = 0; k < draws; ++k) {
      std::copy_n(scores.data() + (k * rows + b) * classes, classes, own.data() + k * classes);
    }
    answers[static_cast<std::size_t>(order[b])] = answer_of(own, results.size(0));
  }
  return answers;
}

/// Counts examples by label and answer in `confusion`, [C, C], too; hidden tokens have none.
Tally tally(const Computed& batch, bool masked, std::int64_t draws, std::span<double> confusion) {
  Tally all;
  all.count = batch.count;
  all.correct_draws.resize(static_cast<std::size_t>(draws));
  const auto number = [&](std::size_t b) {
    return static_cast<double>(batch.first) + 1 + static_cast<double>(b);
  };
  if (masked) {
    const std::vector<double> sums = batch.results.to_vector();
    all.loss = sums[0];
    all.correct = sums[1];
    if (!std::isfinite(sums[0])) all.first_bad = number(0);
    return all;
  }
  const std::vector<std::optional<Answer>> answers = answers_in_order(batch.results, batch.order);
  for (std::size_t b = 0; b < answers.size(); ++b) {
    if (!answers[b]) {
      if (all.first_bad == 0) all.first_bad = number(b);
      continue;
    }
    const std::int64_t label = batch.labels[b];
    all.loss -= answers[b]->log_probabilities[static_cast<std::size_t>(label)];
    all.correct += answers[b]->label == label;
    all.unanimous += answers[b]->unanimous();
    const auto classes = static_cast<std::int64_t>(answers[b]->log_probabilities.size());
    confusion[static_cast<std::size_t>(label * classes + answers[b]->label)] += 1;
    for (std::size_t k = 0; k < all.correct_draws.size(); ++k) {
      all.correct_draws[k] += answers[b]->of_draws[k] == label;
    }
  }
  return all;
}

/// Loss and accuracies from their sums. NonFiniteError where an example's scores are not finite.
void set_scores(Evaluation& result, const Tally& sum, bool masked, const std::string& what) {
  if (sum.first_bad > 0) {
    throw NonFiniteError(fmt::format("{}: example {}{}: what the model says is not finite", what,
                                     static_cast<std::int64_t>(sum.first_bad),
                                     masked ? " or a later one of its batch" : ""));
  }
  const double count = std::max(1.0, sum.count);
  result.loss = sum.loss / count;
  result.accuracy = sum.correct / count;
  result.unanimous = sum.unanimous / count;
  if (masked) return;
  for (const double correct : sum.correct_draws) result.accuracies.push_back(correct / count);
}

}  // namespace

Evaluator::Evaluator(const nn::Model& model, bool graphs)
    : model_(model),
      inputs_(device_of(model)),
      graphs_(device_of(model), graphs),
      masked_(model.config().objective == nn::Objective::predict_masked) {}

/// Adds a microbatch's sums to results_, or puts its scores there.
void Evaluator::submit(std::size_t microbatch, const EvaluateOptions& options) {
  const DeviceBatch batch = inputs_.device_batch(microbatch);
  const auto context = [&](std::int64_t draw) { return nn::answer_context(options.seed, draw); };
  Tape tape(Tape::Mode::eval);
  if (masked_) {
    const nn::Scored scored = model_.masked_loss(tape, batch.input, batch.targets, context(0));
    Tensor loss = results_.slice(0, 1), correct = results_.slice(1, 2);
    tensor::accumulate(loss, scored.loss.value().reshape({1}));
    tensor::accumulate(correct, scored.correct.reshape({1}));
    return;
  }
  const Microbatch& own = inputs_.microbatches()[microbatch];
  for (std::int64_t draw = 0; draw < options.draws; ++draw) {
    const Tensor scores = model_.logits(tape, batch.input, context(draw)).value();  // [b, C]
    Tensor place = results_[draw].slice(own.first, own.first + std::ssize(own.rows));
    place.copy_from(scores);
  }
}

/// Sets results_ to those of a batch.
void Evaluator::compute(const data::Batch& batch, const EvaluateOptions& options) {
  const Shape shape =
      masked_ ? Shape{2} : Shape{options.draws, batch.size, model_.config().classes};
  if (!buffer_.defined() || buffer_.numel() < shape.numel()) {
    buffer_ = Tensor::empty({shape.numel()}, DType::f32, device_of(model_));
    ++buffers_;
  }
  results_ = buffer_.slice(0, shape.numel()).reshape(shape);
  results_.fill(0);
  inputs_.upload(batch, microbatches_of(batch, {1, options.positions}), {});
  for (std::size_t i = 0; i < inputs_.microbatches().size(); ++i) {
    StepGraphs::Layout layout = inputs_.layout(i);
    // Arguments of kernels.
    layout.insert(layout.end(), {static_cast<std::int64_t>(options.seed), options.draws, buffers_});
    graphs_.run(layout, [&, i] { submit(i, options); });
  }
}

std::vector<std::optional<Answer>> Evaluator::answers(const data::Batch& batch,
                                                      const EvaluateOptions& options) {
  compute(batch, options);
  return answers_in_order(results_, sorted_rows(inputs_.microbatches()));
}

std::vector<std::optional<Answer>> Evaluator::answers(const std::vector<data::Tokens>& examples,
                                                      const data::BatchOptions& batches,
                                                      std::int64_t at_once,
                                                      const EvaluateOptions& options) {
  const auto length = [&](std::size_t i) {
    std::size_t longest = 0;
    for (const auto& sequence : examples[i]) longest = std::max(longest, sequence.size());
    return longest;
  };
  std::vector<std::size_t> order(examples.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return length(a) < length(b); });
  std::vector<std::optional<Answer>> found(examples.size());
  for (std::size_t begin = 0; begin < order.size(); begin += static_cast<std::size_t>(at_once)) {
    const std::size_t end = std::min(order.size(), begin + static_cast<std::size_t>(at_once));
    std::vector<data::Tokens> batch;
    for (std::size_t i = begin; i < end; ++i) batch.push_back(examples[order[i]]);
    std::vector<std::optional<Answer>> some = answers(data::pad(batch, batches), options);
    for (std::size_t i = begin; i < end; ++i) found[order[i]] = std::move(some[i - begin]);
  }
  return found;
}

Evaluation Evaluator::operator()(const data::Dataset& split, const data::BatchOptions& batches,
                                 const EvaluateOptions& options) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  const std::int64_t total =
      options.examples > 0 ? std::min(options.examples, split.size()) : split.size();
  const std::int64_t count = ceil_div(total, batches.batch);  // batches
  const auto [part, parts] = options.share;
  data::Loader loader(data::BatchPass(split, batches, total, part, parts));

  Tally sum;
  sum.correct_draws.resize(static_cast<std::size_t>(options.draws));
  const std::size_t numbers = sum.numbers().size();  // of a batch
  const auto classes = static_cast<std::size_t>(masked_ ? 0 : model_.config().classes);
  const std::size_t all_numbers = static_cast<std::size_t>(count) * numbers;
  // The numbers of each batch, then the confusion [C, C] of all.
  std::vector<double> counts(all_numbers + classes * classes);
  const std::span<double> confusion = std::span(counts).subspan(all_numbers);
  std::vector<Computed> computed;
  const auto read = [&] {
    for (const Computed& batch : computed) {
      const std::vector<double> own = tally(batch, masked_, options.draws, confusion).numbers();
      std::copy(own.begin(), own.end(), counts.data() + batch.number * std::ssize(own));
    }
    computed.clear();
  };
  Evaluation result;
  for (std::int64_t first = 0; first < count && !result.interrupted; first += parts) {
    if (const data::Batch* batch = loader.next()) {
      data::Batch hidden;  // with tokens hidden
      auto scored = static_cast<double>(batch->size);
      if (options.masking) {
        hidden = *batch;
        scored = static_cast<double>(hide_for_evaluation(hidden, *options.masking));
      }
      compute(options.masking ? hidden : *batch, options);
      const std::int64_t number = first + part;
      computed.push_back({number, number * batches.batch, scored, results_.clone(),
                          sorted_rows(inputs_.microbatches()), batch->labels});
      if (computed.size() == kMostComputed) read();
    }
    result.examples = std::min(total, (first + parts) * batches.batch);
    if (options.progress) options.progress(result.examples, total);
    result.interrupted = options.stop && options.stop() && result.examples < total;
  }
  read();

  if (!options.share.whole()) options.sum(counts);
  for (std::size_t at = 0; at < all_numbers; at += numbers) {
    sum.add(std::span(counts).subspan(at, numbers));  // in the order of the batches
  }
  set_scores(result, sum, masked_, options.what);
  result.confusion.assign(confusion.begin(), confusion.end());
  result.waited_seconds = loader.waited_seconds();
  result.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return result;
}

Evaluation evaluate(const nn::Model& model, const data::Dataset& split,
                    const data::BatchOptions& batches, const EvaluateOptions& options) {
  return Evaluator(model)(split, batches, options);
}

}  // namespace skytape::train
