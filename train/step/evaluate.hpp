// Accuracy and loss of a model over a split, weighted by examples.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "data/batches.hpp"
#include "data/cache/dataset.hpp"
#include "data/masking.hpp"
#include "nn/model.hpp"
#include "train/ranks/ranks.hpp"
#include "train/step/step_graphs.hpp"
#include "train/step/step_inputs.hpp"

namespace skytape::train {

struct Evaluation {
  double loss = 0;      // mean cross entropy; of hidden tokens, or their mean absolute error
  double accuracy = 0;  // share of examples, or of hidden tokens
  std::int64_t examples = 0;
  double seconds = 0;
  double waited_seconds = 0;  // for the loader
  bool interrupted = false;   // `stop` said so: the numbers are of the examples so far
};

struct EvaluateOptions {
  std::int64_t examples = 0;   // the first so many; 0: all
  std::uint64_t seed = 42;     // of the methods' draws
  std::int64_t positions = 0;  // of a microbatch, see MicrobatchLimits; 0: whole batches
  /// What is hidden, for a model that predicts it: the same in every pass.
  std::optional<data::MaskingOptions> masking;
  /// Asked after each batch, by all ranks at once after each one's; true ends the pass early.
  std::function<bool()> stop;
  /// Called then with the examples done and to do.
  std::function<void(std::int64_t done, std::int64_t total)> progress;
};

/// Evaluates one model again and again. Ranks take the batches of a pass in turn, and all know the
/// result, which has the same bits on any number of them. On a GPU the pass over a batch is captured in a CUDA graph
/// for each layout and replayed, also in later calls.
class Evaluator {
 public:
  explicit Evaluator(const nn::Model& model, bool graphs = true, const Ranks& ranks = kAlone);

  /// One pass over `split`, batches of `batches.batch` examples in file order. Draws come from the
  /// evaluation's own key, with the number of a batch's first example as their step: evaluating
  /// twice gives the same bits.
  [[nodiscard]] Evaluation operator()(const data::Dataset& split, data::BatchOptions batches,
                                      const EvaluateOptions& options);
  [[nodiscard]] const StepGraphs& graphs() const { return graphs_; }

 private:
  void submit(std::size_t microbatch, std::uint64_t seed);
  [[nodiscard]] std::int64_t add_batch(const data::Batch& batch, std::int64_t first,
                                       const EvaluateOptions& options);

  const nn::Model& model_;
  const Ranks& ranks_;
  StepInputs inputs_;
  StepGraphs graphs_;
  Tensor sums_;  // f32[2]: loss, correct answers of a batch
};

/// The same, once.
[[nodiscard]] Evaluation evaluate(const nn::Model& model, const data::Dataset& split,
                                  const data::BatchOptions& batches,
                                  const EvaluateOptions& options);

}  // namespace skytape::train
