#include "train/evaluate.hpp"

#include <algorithm>
#include <chrono>

#include "autograd/tape.hpp"
#include "data/loader.hpp"
#include "tensor/elementwise.hpp"
#include "tensor/reduce.hpp"
#include "tensor/softmax.hpp"
#include "train/chunks.hpp"

namespace skytape::train {
namespace {

/// Adds the chunk's summed loss and number of correct answers to `sums`, f32[2].
void add_chunk(const nn::Model& model, const data::Batch& batch, const Chunk& chunk,
               const nn::StepContext& context, Tensor& sums) {
  const Feed feed = upload(batch, chunk, sums.device());

  Tape tape(Tape::Mode::eval);
  const Tensor logits = model.logits(tape, feed.input, context).value();   // [B, C]
  const Tensor losses = tensor::cross_entropy(logits, feed.labels).first;  // [B]
  const Tensor correct = tensor::correct(logits, feed.labels);             // [B]
  Tensor loss_sum = sums.slice(0, 1);
  Tensor correct_sum = sums.slice(1, 2);
  tensor::accumulate(loss_sum, tensor::sum_all(losses).reshape({1}));
  tensor::accumulate(correct_sum, tensor::sum_all(correct).reshape({1}));
}

}  // namespace

Evaluation evaluate(const nn::Model& model, const data::Dataset& split, data::BatchOptions batches,
                    const EvaluateOptions& options) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  const std::int64_t total =
      options.examples > 0 ? std::min(options.examples, split.size()) : split.size();
  batches.group_by_length = false;
  data::Loader loader(data::BatchPass(split, batches, total));

  // f32 counts whole examples exactly up to 2^24.
  Tensor sums =
      Tensor::zeros({2}, DType::f32, model.parameters().parameters().front().value.device());
  Evaluation result;
  while (const data::Batch* batch = loader.next()) {
    nn::StepContext context;
    context.random = {options.seed, {}};
    context.fewest_tokens = fewest_tokens(*batch);
    for (const Chunk& chunk : chunks_of(*batch, {1, options.positions})) {
      context.first_example = result.examples + chunk.first;
      add_chunk(model, *batch, chunk, context, sums);
    }
    result.examples += batch->size;
    if (options.progress) options.progress(result.examples, total);
    if (options.stop && options.stop()) {
      result.interrupted = result.examples < total;
      break;
    }
  }
  const std::vector<double> values = sums.to_vector();
  const auto count = static_cast<double>(std::max<std::int64_t>(1, result.examples));
  result.loss = values[0] / count;
  result.accuracy = values[1] / count;
  result.waited_seconds = loader.waited_seconds();
  result.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return result;
}

}  // namespace skytape::train
