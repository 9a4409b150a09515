// Training and evaluation steps that predict hidden tokens: parts of a batch, every method, graphs,
// precisions; and that such a model learns.
#include <cmath>

#include "attention/registry.hpp"
#include "data/masking.hpp"
#include "data/tokenise.hpp"
#include "tensor/gemm/precision.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tests/data/synthetic.hpp"
#include "tests/support/devices.hpp"
#include "tests/support/doctest.hpp"
#include "train/step/evaluate.hpp"
#include "train/step/trainer.hpp"

using namespace skytape;
using namespace skytape::train;
using data::Tokens;
using data::synthetic::Folder;

namespace {

constexpr std::int64_t kLength = 32;
constexpr int kPeriod = 15;  // ids of tokens are 1 to this number, or intensities

nn::ModelConfig masked_model(const std::string& attention, bool pixels = false, int sequences = 1) {
  nn::ModelConfig config;
  config.attention = attention;
  if (attention::find(attention).has_option("features")) {
    config.attention_options["features"] = "8";
  }
  config.vocabulary = pixels ? 257 : kPeriod + 2;
  config.nominal_length = kLength;
  config.width = 16;
  config.ff_width = 16;
  config.head_width = 8;
  config.layers = 1;
  config.sequences = sequences;
  config.dropout = 0;
  config.objective = nn::Objective::predict_masked;
  config.pixels = pixels;
  return config;
}

data::MaskingOptions masking_of(bool pixels = false) {
  data::MaskingOptions options;
  options.rate = 0.25;
  options.mask_id = pixels ? 256 : kPeriod + 1;
  return options;
}

/// Sequences of two tokens in turn, others in each: neighbours tell what is hidden.
Tokens sequence(int number, int length, bool pixels, int sequences) {
  Tokens example;
  for (int t = 0; t < sequences; ++t) {
    std::vector<std::int32_t> ids;
    for (int j = 0; j < length; ++j) {
      const int token = (number + t + j % 2) % kPeriod;
      ids.push_back(pixels ? 16 * token : 1 + token);
    }
    example.push_back(ids);
  }
  return example;
}

/// A batch whose tokens are hidden as those of epoch `epoch` are.
data::Batch hidden_batch(const std::vector<int>& lengths, std::uint64_t epoch, bool pixels = false,
                         int sequences = 1) {
  std::vector<Tokens> examples;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    examples.push_back(sequence(2 * static_cast<int>(i), lengths[i], pixels, sequences));
  }
  data::BatchOptions options;
  options.nominal_length = kLength;
  data::Batch batch = pad(examples, options);
  batch.round_to = 8;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    batch.visits.push_back(epoch * lengths.size() + i);
  }
  hide_tokens(batch, masking_of(pixels));
  return batch;
}

struct Training {
  nn::Model model;
  Trainer trainer;
  explicit Training(const nn::ModelConfig& config, Device device = Device::cpu, double lr = 1e-2,
                    const MicrobatchLimits& limits = {}, bool graphs = true)
      : model(config, DType::f32, device, 3), trainer(model, {}, {lr, 400, 4}, 3, limits, graphs) {}
  [[nodiscard]] std::vector<double> gradients() {
    return model.parameters().gradients().to_vector();
  }
};

double distance(const std::vector<double>& x, const std::vector<double>& y) {
  double sum = 0, norm = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    sum += (x[i] - y[i]) * (x[i] - y[i]);
    norm += y[i] * y[i];
  }
  REQUIRE(norm > 0);
  return std::sqrt(sum / norm);
}

}  // namespace

TEST_CASE("microbatches of hidden tokens make up the batch, of ids, of pixels, of a dual encoder") {
  const std::vector<int> lengths = {20, 7, 32, 11, 5, 9, 14};
  struct Kind {
    bool pixels;
    int sequences;
  };
  for (const Kind kind : {Kind{false, 1}, {true, 1}, {false, 2}}) {
    CAPTURE(kind.pixels);
    CAPTURE(kind.sequences);
    nn::ModelConfig config = masked_model("softmax", kind.pixels, kind.sequences);
    config.dropout = 0.1;
    const data::Batch batch = hidden_batch(lengths, 0, kind.pixels, kind.sequences);
    Training whole(config);
    whole.trainer.step(batch);
    const TrainMetrics expected = whole.trainer.take_metrics();
    CHECK(expected.loss > 0);
    for (const MicrobatchLimits limits : {MicrobatchLimits{2}, {3}, {1, 40}, {1, 1}}) {
      Training parts(config, Device::cpu, 1e-2, limits);
      parts.trainer.step(batch);
      CHECK(distance(parts.gradients(), whole.gradients()) < 1e-5);
      const TrainMetrics metrics = parts.trainer.take_metrics();
      CHECK(metrics.loss == doctest::Approx(expected.loss).epsilon(1e-5));
      CHECK(metrics.accuracy == doctest::Approx(expected.accuracy).epsilon(1e-5));
    }
  }
}

TEST_CASE("a narrow microbatch computes as many places as its width can have") {
  const data::Batch batch = hidden_batch({32, 7, 5}, 0);
  CHECK(upload(batch, {{0}, 0, 32}, Device::cpu).targets.at[0].shape() == Shape{1, 8});
  const DeviceBatch narrow = upload(batch, {{1, 2}, 1, 8}, Device::cpu);
  CHECK(narrow.targets.at[0].shape() == Shape{2, 2});
  double weight = 0;
  for (const double w : narrow.targets.weight[0].to_vector()) weight += w;
  CHECK(weight == doctest::Approx(2.0 / 10));  // of 8 + 1 + 1 targets
}

TEST_CASE("three steps of hidden tokens with every method stay finite and lower the loss") {
  const data::Batch batch = hidden_batch({32, 20, 9, 26}, 0);
  for (const attention::Spec& spec : attention::registry()) {
    INFO(spec.name);
    Training run(masked_model(spec.name), Device::cpu, 2e-2);
    std::vector<double> losses;
    for (int step = 0; step < 3; ++step) {
      run.trainer.step(batch);
      losses.push_back(run.trainer.take_metrics().loss);
      CHECK(tensor::all_finite(run.model.parameters().gradients()));
    }
    CHECK(tensor::all_finite(run.model.parameters().values()));
    CHECK(losses[2] < losses[0]);
  }
}

TEST_CASE("hidden tokens and pixels are learned where their neighbours tell them") {
  for (const bool pixels : {false, true}) {
    CAPTURE(pixels);
    Training run(masked_model("softmax", pixels));
    const auto train = [&](std::uint64_t first, std::uint64_t last) {
      for (std::uint64_t epoch = first; epoch < last; ++epoch) {
        run.trainer.step(hidden_batch({32, 32, 24, 32, 30, 28, 32}, epoch, pixels));
      }
      return run.trainer.take_metrics();
    };
    const TrainMetrics early = train(0, 5);
    (void)train(5, 190);
    const TrainMetrics late = train(190, 200);
    CHECK(late.loss < 0.2 * early.loss);
    if (!pixels) CHECK(late.accuracy > 0.95);
  }
}

TEST_CASE("evaluation hides the same tokens of an example every time, in batches of any size") {
  const Folder folder;
  const data::Dataset split = data::synthetic::split_of(
      folder, data::synthetic::sequences_of({20, 31, 5, 9, 14, 30, 2, 32}));
  const nn::Model model(masked_model("softmax"), DType::f32, Device::cpu, 5);
  EvaluateOptions options;
  options.masking = masking_of();
  const auto evaluated = [&](std::int64_t size) {
    data::BatchOptions batches;
    batches.batch = size;
    batches.nominal_length = kLength;
    return evaluate(model, split, batches, options);
  };
  const Evaluation three = evaluated(3), again = evaluated(3), eight = evaluated(8);
  CHECK(three.loss == again.loss);
  CHECK(three.examples == 8);
  CHECK(three.loss == doctest::Approx(eight.loss).epsilon(1e-5));
  CHECK(three.accuracy == doctest::Approx(eight.accuracy));
  options.masking->seed = 43;
  CHECK(evaluated(3).loss != three.loss);
}

TEST_CASE("bf16 products of the masked head move its gradient by their rounding alone") {
  if (!test::cpu_bf16_or_skip()) return;
  const data::Batch batch = hidden_batch({32, 20, 9, 26}, 0);
  Training exact(masked_model("softmax"));
  exact.trainer.step(batch);
  const PrecisionScope scope(Device::cpu, Precision::bf16);
  Training rounded(masked_model("softmax"));
  rounded.trainer.step(batch);
  const double error = distance(rounded.gradients(), exact.gradients());
  CHECK(error > 0);
  CHECK(error < 0.05);
}

TEST_CASE("steps of hidden tokens on a GPU replay their graphs, and agree with the CPU") {
  if (!test::cuda_or_skip()) return;
  struct Kind {
    bool pixels;
    int sequences;
  };
  for (const Kind kind : {Kind{false, 1}, {true, 1}, {false, 2}}) {
    CAPTURE(kind.pixels);
    CAPTURE(kind.sequences);
    const nn::ModelConfig config = masked_model("skyformer", kind.pixels, kind.sequences);
    for (const MicrobatchLimits limits : {MicrobatchLimits{1}, {2}}) {
      Training direct(config, Device::cuda, 1e-2, limits, false);
      Training replayed(config, Device::cuda, 1e-2, limits),
          on_cpu(config, Device::cpu, 1e-2, limits);
      for (std::uint64_t epoch = 0; epoch < 4; ++epoch) {
        const data::Batch batch = hidden_batch({32, 11, 25, 6 + static_cast<int>(epoch)}, epoch,
                                               kind.pixels, kind.sequences);
        for (Training* run : {&direct, &replayed, &on_cpu}) run->trainer.step(batch);
      }
      CHECK(replayed.trainer.graphs().counts().replayed > 0);
      CHECK(replayed.gradients() == direct.gradients());
      CHECK(replayed.model.parameters().values().to_vector() ==
            direct.model.parameters().values().to_vector());
      CHECK(replayed.trainer.take_metrics().loss ==
            doctest::Approx(on_cpu.trainer.take_metrics().loss).epsilon(1e-3));
    }
  }
}
