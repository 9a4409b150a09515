// Accuracy and loss of a model over a split, weighted by examples.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/batches.hpp"
#include "data/cache/dataset.hpp"
#include "data/masking.hpp"
#include "data/tokenise.hpp"
#include "nn/model.hpp"
#include "train/step/answers.hpp"
#include "train/step/share.hpp"
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
  // The following are empty unless the model predicts classes.
  std::vector<double> accuracies;       // [K], of each draw alone
  double unanimous = 0;                 // share of examples of which all draws say the same
  std::vector<std::int64_t> confusion;  // [C, C]: examples by label and answer (class_scores.hpp)
};

struct EvaluateOptions {
  std::string what = "evaluation";  // the split, for messages
  std::int64_t examples = 0;        // the first so many; 0: all
  std::uint64_t seed = 42;          // of the methods' draws
  std::int64_t draws = 1;           // K, that an answer is the mean of
  std::int64_t positions = 0;       // of a microbatch, see MicrobatchLimits; 0: whole batches
  /// The tokens to hide, for a model that predicts them: the same in every pass.
  std::optional<data::MaskingOptions> masking;
  /// The batches of the pass that are scored here, and the sum of what all processes counted:
  /// called once, unless the share is whole, and exact, since no two count the same batch.
  Share share = {};
  std::function<void(std::span<double> counts)> sum = {};
  /// Asked after each batch, by all processes after as many; true ends the pass early.
  std::function<bool()> stop;
  /// Called then with the examples done and to do.
  std::function<void(std::int64_t done, std::int64_t total)> progress;
};

/// Evaluates one model again and again. What it says about an example is a function of the model
/// and the example: nn::answer_context(). On a GPU the pass over a batch is captured in a CUDA
/// graph for each layout and replayed, also in later calls.
class Evaluator {
 public:
  explicit Evaluator(const nn::Model& model, bool graphs = true);

  /// One pass over `split`, batches of `batches.batch` examples in file order: evaluating twice
  /// gives the same bits. NonFiniteError naming the first example whose scores are not finite.
  [[nodiscard]] Evaluation operator()(const data::Dataset& split, const data::BatchOptions& batches,
                                      const EvaluateOptions& options);
  /// The answers about a batch's examples, in its order; nothing where scores are not finite.
  [[nodiscard]] std::vector<std::optional<Answer>> answers(const data::Batch& batch,
                                                           const EvaluateOptions& options);
  /// The same about any number of examples, padded to batches of similar lengths by the rules of
  /// `batches`, so that little is computed for padding; at most `at_once` in one.
  [[nodiscard]] std::vector<std::optional<Answer>> answers(
      const std::vector<data::Tokens>& examples, const data::BatchOptions& batches,
      std::int64_t at_once, const EvaluateOptions& options);
  [[nodiscard]] const StepGraphs& graphs() const { return graphs_; }

 private:
  void compute(const data::Batch& batch, const EvaluateOptions& options);
  void submit(std::size_t microbatch, const EvaluateOptions& options);

  const nn::Model& model_;
  StepInputs inputs_;
  StepGraphs graphs_;
  bool masked_;     // hidden tokens are predicted, not classes
  Tensor results_;  // of a batch: scores f32[K, B, C], sorted by length, or the loss and the
                    // correct answers of hidden tokens, f32[2]
  Tensor buffer_;   // the memory of results_
  std::int64_t buffers_ = 0;  // how many there were: addresses are part of the layout
};

/// The same, once.
[[nodiscard]] Evaluation evaluate(const nn::Model& model, const data::Dataset& split,
                                  const data::BatchOptions& batches,
                                  const EvaluateOptions& options);

}  // namespace skytape::train
