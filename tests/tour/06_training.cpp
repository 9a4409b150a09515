// One training step, written plainly: batch, model, loss, backward, AdamW
#include <cstdint>
#include <numeric>
#include <vector>

#include "autograd/ops.hpp"
#include "nn/model.hpp"
#include "nn/optimizer.hpp"
#include "tensor/norm/softmax.hpp"
#include "tensor/random/random.hpp"
#include "tests/support/doctest.hpp"
#include "tests/tour/tour.hpp"

using namespace skytape;
using tour::say;

namespace {

constexpr std::int64_t kB = 16, kN = 15;  // examples, positions

struct Examples {
  nn::ModelInput input;
  Tensor labels;  // i32[B]
};

/// Sequences of the tokens 1 and 2; the label says whether there are more twos. Every fourth
/// example is shorter: its last four positions are padding, id 0 with a 0 in the mask.
///   The real data come from tasks (data/tasks/), are stored as memory-mapped files
///   (data/cache/), shuffled and padded by data::BatchStream, and read ahead by data::Loader.
Examples draw_examples(const Random& random) {
  const std::vector<double> u =
      tensor::uniform({kB, kN + 1}, random, DType::f64, Device::cpu).to_vector();
  std::vector<std::int32_t> ids, labels;
  std::vector<double> mask;
  for (std::int64_t b = 0; b < kB; ++b) {
    const double* const row = &u[b * (kN + 1)];
    const double share_of_twos = row[kN] < 0.5 ? 0.3 : 0.7;
    const std::int64_t length = b % 4 == 3 ? kN - 4 : kN;  // odd: no ties
    std::int64_t twos = 0;
    for (std::int64_t i = 0; i < kN; ++i) {
      const int token = i >= length ? 0 : row[i] < share_of_twos ? 2 : 1;
      twos += token == 2 ? 1 : 0;
      ids.push_back(token);
      mask.push_back(i < length ? 1 : 0);
    }
    labels.push_back(2 * twos > length ? 1 : 0);
  }
  Examples e;
  // [0]: the first text; Retrieval has a second.
  e.input.ids[0] = Tensor::from(ids, {kB, kN}, DType::i32, Device::cpu);
  e.input.mask[0] = Tensor::from(mask, {kB, kN}, DType::f32, Device::cpu);
  e.labels = Tensor::from(labels, {kB}, DType::i32, Device::cpu);
  return e;
}

/// Share of examples whose highest score is the label's.
double accuracy(const Tensor& logits, const Tensor& labels) {
  const std::vector<double> correct = tensor::correct(logits, labels).to_vector();
  return std::accumulate(correct.begin(), correct.end(), 0.0) / kB;
}

}  // namespace

TEST_CASE("tour 6: a training run") {
  //   train/config/ turns a recipe, a task and --set into these numbers (RunConfig).
  nn::ModelConfig config;
  config.attention = "skyformer";
  config.attention_options = {{"features", "8"}};
  config.vocabulary = 3;
  config.classes = 2;
  config.nominal_length = kN;
  config.layers = 1;
  config.width = 16;
  config.ff_width = 16;
  config.head_width = 8;

  constexpr int kSteps = 60;
  nn::Model model(config, DType::f32, Device::cpu, /*seed=*/1);
  nn::AdamW optimizer(model.parameters(), nn::AdamWConfig{}, nn::Schedule{1e-2, kSteps, 10});
  const Random random{/*key=*/7, {}};

  say("{} parameters in {} tensors, {} examples of {} tokens a step\n\nstep    loss   accuracy\n",
      model.parameters().parameter_count(), model.parameters().parameters().size(), kB, kN);
  std::vector<double> losses;
  for (int t = 0; t < kSteps; ++t) {
    // 1. A batch.
    //   StepInputs packs it and the optimiser's numbers into one copy to the device, and
    //   microbatches_of() splits it, so that activations fit into the CPU's caches.
    const Examples batch = draw_examples(random.fork(static_cast<std::uint64_t>(t)));

    // 2. The model writes its ops on a fresh tape. Dropout and landmarks are drawn from the key
    // and the step's number, so that a step can be repeated.
    //   Trainer adds first_example, with which a microbatch draws what the batch would, and keeps
    //   the step's number on the device; StepGraphs captures all of it in a CUDA graph and replays.
    nn::StepContext step;
    step.training = true;
    step.random = {random.key,
                   Tensor::from(std::vector<std::int32_t>{t}, {1}, DType::i32, Device::cpu)};
    Tape tape;
    const Var logits = model.logits(tape, batch.input, step);  // [B, C]

    // 3. The loss, a scalar. Trainer::score calls Model::class_loss: the same head, loss and
    //   accuracy, in one kernel where a GPU can.
    //   Trainer weighs it with the microbatch's share of the batch, and adds loss and accuracy up
    //   on the device: take_metrics() reads them at log points only, so that no step waits.
    const Var loss = cross_entropy(logits, batch.labels);
    losses.push_back(loss.value().item());
    const double right = accuracy(logits.value(), batch.labels);

    // 4. Backward adds to every parameter's gradient, which must be zero before.
    //   Trainer zeroes before each microbatch and StepSum adds their gradients up; --check-finite
    //   names the first op whose gradient is not finite (finite_check in
    //   autograd/observers.hpp).
    model.parameters().zero_gradients();
    tape.backward(loss);

    // 5. AdamW clamps every entry of the gradient to ±1, updates both moments and all values in one
    // kernel, and the schedule moves on.
    //   run_phase() (train/run/loop.cpp) repeats this, evaluates on the dev split, selects the best
    //   weights, writes metrics and checkpoints and stops on a signal where it can resume.
    optimizer.step();
    if (t % 10 == 0 || t + 1 == kSteps) say("{:4}   {:.3f}   {:.2f}\n", t, losses.back(), right);
  }

  const double first = std::accumulate(losses.begin(), losses.begin() + 5, 0.0) / 5;
  const double last = std::accumulate(losses.end() - 5, losses.end(), 0.0) / 5;
  CHECK(first == doctest::Approx(0.693).epsilon(0.1));  // log 2: the model knows nothing yet
  CHECK(last < 0.5 * first);

  // Evaluation: a tape that keeps nothing for backward, no dropout, and fresh examples.
  //   evaluate() (train/step/) runs a whole split and trims batches to their longest example.
  const Examples fresh = draw_examples(random.fork(1000));
  Tape tape(Tape::Mode::eval);
  const Var logits = model.logits(tape, fresh.input, nn::StepContext{});
  const double right = accuracy(logits.value(), fresh.labels);
  say("\nMean loss of the first five steps {:.3f}, of the last five {:.3f};\n"
      "on examples that it has not seen {:.0f} per cent are right.\n",
      first, last, 100 * right);
  CHECK(right >= 0.8);
}
