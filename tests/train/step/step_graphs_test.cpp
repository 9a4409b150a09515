// Steps as CUDA graphs: the same bits as op by op, for every method.
#include "train/step/step_graphs.hpp"

#include <algorithm>

#include "attention/registry.hpp"
#include "data/tokenise.hpp"
#include "tensor/gemm/precision.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tests/data/synthetic.hpp"
#include "tests/support/devices.hpp"
#include "tests/support/doctest.hpp"
#include "train/step/evaluate.hpp"
#include "train/step/trainer.hpp"
#ifdef SKYTAPE_CUDA_SIMULATED
#include "tests/cuda_simulator/simulator.hpp"
#endif

using namespace skytape;
using namespace skytape::train;
using data::Tokens;
using data::synthetic::error_of;
using data::synthetic::Folder;

namespace {

constexpr std::int64_t kLength = 40;
constexpr double kLr = 1e-2;

// Address sanitizer slows simulated threads tenfold: it sees each method with its first options.
#ifdef __SANITIZE_ADDRESS__
constexpr std::size_t kMostSamples = 1;
#else
constexpr std::size_t kMostSamples = 1000;
#endif

nn::ModelConfig small_model(const std::string& attention, const attention::OptionValues& options,
                            int sequences = 1) {
  nn::ModelConfig config;
  config.attention = attention;
  config.attention_options = options;
  config.vocabulary = 16;
  config.classes = 3;
  config.nominal_length = kLength;
  config.sequences = sequences;
  config.width = 8;
  config.ff_width = 12;
  config.head_width = 4;
  config.layers = 1;
  config.dropout = 0.2;
  return config;
}

/// Examples of these lengths, other tokens for another seed.
data::Batch make_batch(const std::vector<int>& lengths, int seed, bool trim, int sequences = 1) {
  std::vector<Tokens> examples;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    Tokens example;
    for (int t = 0; t < sequences; ++t) {
      std::vector<std::int32_t> ids;
      for (int j = 0; j < lengths[i]; ++j) {
        ids.push_back(1 + (5 * static_cast<int>(i) + 3 * j + 7 * seed + 2 * t) % 15);
      }
      example.push_back(ids);
    }
    examples.push_back(example);
  }
  data::BatchOptions options;
  options.nominal_length = kLength;
  options.round_to = 8;
  options.trim = trim;
  data::Batch batch = pad(examples, options);
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    batch.labels[i] = (static_cast<int>(i) + seed) % 3;
  }
  return batch;
}

/// Batches of two layouts, in a mixed order; no two alike.
std::vector<data::Batch> changing_batches(bool trim = true, int sequences = 1, int count = 6) {
  std::vector<data::Batch> batches;
  for (int i = 0; i < count; ++i) {
    const bool narrow = i % 3 == 1;
    batches.push_back(
        make_batch(narrow ? std::vector<int>{16, 9 + i, 3} : std::vector<int>{40, 11 + i, 25, 6}, i,
                   trim, sequences));
  }
  return batches;
}

/// Few features: the simulated device is slow.
attention::OptionValues few_features(const char* method) {
  if (!attention::find(method).has_option("features")) return {};
  return {{"features", "8"}};
}

/// A model in training.
struct Training {
  nn::Model model;
  Trainer trainer;
  Training(const nn::ModelConfig& config, Device device, bool graphs, std::uint64_t seed = 3,
           double lr = kLr, const MicrobatchLimits& limits = {})
      : model(config, DType::f32, device, seed),
        trainer(model, {}, {lr, 20, 4}, seed, limits, graphs) {}

  [[nodiscard]] std::vector<double> weights() { return model.parameters().values().to_vector(); }
  [[nodiscard]] std::vector<double> gradients() {
    return model.parameters().gradients().to_vector();
  }
};

}  // namespace

TEST_CASE("a CPU runs every step directly") {
  StepGraphs graphs(Device::cpu, true);
  int calls = 0;
  for (int i = 0; i < 5; ++i) graphs.run({7}, [&] { ++calls; });
  CHECK(calls == 5);
  CHECK_FALSE(graphs.on());
  CHECK(graphs.counts().direct == 5);
  CHECK(graphs.counts().replayed == 0);
}

TEST_CASE("a layout runs once, is captured the second time and replayed, until it is forgotten") {
  if (!test::cuda_or_skip()) return;
  StepGraphs graphs(Device::cuda, true, 2);
  Tensor sum = Tensor::zeros({1}, DType::f32, Device::cuda);
  const Tensor one = Tensor::full({1}, 1, DType::f32, Device::cuda);
  int calls = 0;
  const auto run = [&](std::int64_t layout) {
    graphs.run({layout}, [&] {
      ++calls;
      tensor::accumulate(sum, one, static_cast<double>(layout));
    });
  };
  for (const std::int64_t layout : {1, 1, 1, 10, 1, 10}) run(layout);
  CHECK(calls == 4);
  CHECK(sum.item() == 24);
  CHECK(graphs.counts().direct == 2);
  CHECK(graphs.counts().captured == 2);
  CHECK(graphs.counts().replayed == 4);
  run(100);  // the third layout: 1 goes
  run(10);
  CHECK(calls == 5);
  run(1);  // 100 goes
  run(10);
  CHECK(calls == 6);
  CHECK(sum.item() == 145);
}

TEST_CASE(
    "replayed steps of every method give the bits of direct ones, layouts and dropout changing") {
  if (!test::cuda_or_skip()) return;
  for (const attention::Spec& spec : attention::registry()) {
    for (std::size_t i = 0; i < std::min(kMostSamples, spec.samples.size()); ++i) {
      const attention::OptionValues& options = spec.samples[i];
      CAPTURE(spec.name);
      std::string text;
      for (const auto& [key, value] : options) text += key + "=" + value + " ";
      CAPTURE(text);
      const nn::ModelConfig config = small_model(spec.name, options);
      Training direct(config, Device::cuda, false), replayed(config, Device::cuda, true);
      for (const data::Batch& batch : changing_batches(!spec.reads_padding, 1, 5)) {
        direct.trainer.step(batch);
        replayed.trainer.step(batch);
      }
      CHECK(replayed.trainer.graphs().counts().direct == 2);
      CHECK(replayed.trainer.graphs().counts().replayed == 3);
      CHECK(direct.trainer.graphs().counts().replayed == 0);
      CHECK(replayed.weights() == direct.weights());
      CHECK(replayed.gradients() == direct.gradients());
      CHECK(replayed.trainer.sums().to_vector() == direct.trainer.sums().to_vector());
    }
  }
}

TEST_CASE("methods that use two streams give the bits of one, op by op and replayed") {
  if (!test::cuda_or_skip()) return;
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    const PrecisionScope scope(Device::cuda, precision);
    for (const char* method : {"skyformer", "nystrom", "nystrom_sm"}) {
      CAPTURE(method);
      const nn::ModelConfig config = small_model(method, few_features(method));
      Training one(config, Device::cuda, false), two(config, Device::cuda, true);
      for (const data::Batch& batch : changing_batches(true, 1, 5)) {
        {
#ifdef SKYTAPE_CUDA_SIMULATED
          const cuda_simulator::StreamsRunAtOnce one_behind_the_other;
#endif
          one.trainer.step(batch);
        }
        two.trainer.step(batch);
        CHECK(two.gradients() == one.gradients());
      }
      CHECK(two.trainer.graphs().counts().replayed == 3);
      CHECK(two.weights() == one.weights());
    }
  }
}

TEST_CASE("a replayed step allocates nothing and leaves the peak as it was") {
  if (!test::cuda_or_skip()) return;
  Training run(small_model("skyformer", {{"features", "8"}}), Device::cuda, true);
  const data::Batch batch = make_batch({40, 30, 20, 10}, 1, true);
  for (int i = 0; i < 2; ++i) run.trainer.step(batch);
  const MemoryStats before = memory_stats(Device::cuda);
  for (int i = 0; i < 3; ++i) run.trainer.step(batch);
  CHECK(memory_stats(Device::cuda).system_allocations == before.system_allocations);
  CHECK(memory_stats(Device::cuda).peak_bytes == before.peak_bytes);
  CHECK(memory_stats(Device::cuda).live_bytes == before.live_bytes);
}

TEST_CASE("a dual encoder and accumulated microbatches replay as well") {
  if (!test::cuda_or_skip()) return;
  for (const char* method : {"skeinformer", "vmean"}) {
    CAPTURE(method);
    for (const MicrobatchLimits limits : {MicrobatchLimits{2}}) {
      const nn::ModelConfig config = small_model(method, few_features(method), 2);
      Training direct(config, Device::cuda, false, 3, kLr, limits);
      Training replayed(config, Device::cuda, true, 3, kLr, limits);
      for (const data::Batch& batch : changing_batches(true, 2)) {
        direct.trainer.step(batch);
        replayed.trainer.step(batch);
      }
      CHECK(replayed.trainer.graphs().counts().replayed > 0);
      CHECK(replayed.weights() == direct.weights());
    }
  }
}

TEST_CASE("steps of every pooling and kind of positions replay as well") {
  if (!test::cuda_or_skip()) return;
  using nn::Pooling;
  using nn::Positions;
  struct Case {
    Pooling pooling;
    Positions positions;
    bool pyramid = false;
  };
  const Case cases[] = {
      {Pooling::mean, Positions::rotary},       {Pooling::first, Positions::sinusoidal},
      {Pooling::cls, Positions::none},          {Pooling::max, Positions::rotary},
      {Pooling::attention, Positions::learned}, {Pooling::mean, Positions::learned, true}};
  for (const auto& [pooling, positions, pyramid] : cases) {
    CAPTURE(static_cast<int>(pooling));
    CAPTURE(pyramid);
    nn::ModelConfig config = small_model("skyformer", few_features("skyformer"));
    config.pooling = pooling;
    config.pyramid = pyramid;
    config.columns = pyramid ? 8 : 0;
    config.positions = positions;
    config.label_smoothing = 0.1;
    Training direct(config, Device::cuda, false), replayed(config, Device::cuda, true);
    for (const data::Batch& batch : changing_batches(true, 1, 5)) {
      direct.trainer.step(batch);
      replayed.trainer.step(batch);
    }
    CHECK(replayed.trainer.graphs().counts().replayed == 3);
    CHECK(replayed.weights() == direct.weights());
  }
}

TEST_CASE("replays of one batch drop other units each time") {
  if (!test::cuda_or_skip()) return;
  Training run(small_model("softmax", {}), Device::cuda, true, 3, 0);  // weights stay
  const data::Batch batch = make_batch({40, 30, 20, 10}, 1, true);
  std::vector<std::vector<double>> gradients;
  for (int i = 0; i < 6; ++i) {
    run.trainer.step(batch);
    gradients.push_back(run.gradients());
    for (std::size_t j = 0; j + 1 < gradients.size(); ++j) CHECK(gradients[j] != gradients.back());
  }
}

TEST_CASE("a replayed schedule advances, and a run continues from its middle bit for bit") {
  if (!test::cuda_or_skip()) return;
  const nn::ModelConfig config = small_model("skyformer", {{"features", "8"}});
  const std::vector<data::Batch> batches = changing_batches();
  Training whole(config, Device::cuda, true);
  for (const data::Batch& batch : batches) whole.trainer.step(batch);

  Training first(config, Device::cuda, true), second(config, Device::cuda, true, 4);
  const std::size_t half = 4;
  for (std::size_t i = 0; i < half; ++i) first.trainer.step(batches[i]);
  second.model.parameters().values().copy_from(first.model.parameters().values());
  second.trainer.optimizer().first_moment().copy_from(first.trainer.optimizer().first_moment());
  second.trainer.optimizer().second_moment().copy_from(first.trainer.optimizer().second_moment());
  second.trainer.optimizer().resume_at(static_cast<std::int64_t>(half));
  for (std::size_t i = half; i < batches.size(); ++i) second.trainer.step(batches[i]);
  CHECK(second.weights() != whole.weights());  // it draws from another seed
  Training third(config, Device::cuda, true);
  third.model.parameters().values().copy_from(first.model.parameters().values());
  third.trainer.optimizer().first_moment().copy_from(first.trainer.optimizer().first_moment());
  third.trainer.optimizer().second_moment().copy_from(first.trainer.optimizer().second_moment());
  third.trainer.optimizer().resume_at(static_cast<std::int64_t>(half));
  for (std::size_t i = half; i < batches.size(); ++i) third.trainer.step(batches[i]);
  CHECK(third.weights() == whole.weights());
}

TEST_CASE("steps that check or time their ops run directly between replays") {
  if (!test::cuda_or_skip()) return;
  const nn::ModelConfig config = small_model("nystrom", {{"features", "8"}});
  Training plain(config, Device::cuda, true), mixed(config, Device::cuda, true);
  OpSeconds seconds;
  for (const data::Batch& batch : changing_batches()) {
    plain.trainer.step(batch);
    const std::int64_t done = mixed.trainer.optimizer().steps_done();
    mixed.trainer.check_finite(done == 3);
    mixed.trainer.time_ops(done == 5 ? &seconds : nullptr);
    mixed.trainer.step(batch);
  }
  CHECK(seconds.contains("attention"));
  CHECK(mixed.trainer.graphs().counts().direct > plain.trainer.graphs().counts().direct);
  CHECK(mixed.weights() == plain.weights());
}

TEST_CASE("evaluation replays with the bits of a direct pass, while training changes the weights") {
  if (!test::cuda_or_skip()) return;
  const Folder folder;
  const data::Dataset split = data::synthetic::split_of(
      folder, data::synthetic::sequences_of({20, 31, 5, 9, 14, 30, 2, 8, 31, 30, 29, 28}));
  for (const char* method : {"skyformer", "skeinformer"}) {
    CAPTURE(method);
    nn::ModelConfig config = small_model(method, few_features(method));
    config.classes = 16;
    Training run(config, Device::cuda, true);
    Evaluator direct(run.model, false), replayed(run.model);
    data::BatchOptions batches;
    batches.batch = 2;
    batches.nominal_length = kLength;
    batches.round_to = kLength;
    for (int i = 0; i < 3; ++i) {
      const Evaluation a = direct(split, batches, {}), b = replayed(split, batches, {});
      CHECK(a.loss == b.loss);
      CHECK(a.accuracy == b.accuracy);
      run.trainer.step(make_batch({40, 30, 20, 10}, i, true));
    }
    CHECK(replayed.graphs().counts().replayed == 17);
    CHECK(direct.graphs().counts().replayed == 0);
  }
}

TEST_CASE("a step that asks the device for a number is refused with the op's name") {
  if (!test::cuda_or_skip()) return;
  nn::ModelConfig config = small_model("skyformer", {{"features", "8"}});
  Training run(config, Device::cuda, true);
  const data::Batch batch = make_batch({40, 30, 20, 10}, 1, true);
  run.trainer.step(batch);
  const std::vector<double> before = run.weights();
  StepGraphs graphs(Device::cuda, true);
  const auto asking = [&] { (void)run.trainer.sums().to_vector(); };
  graphs.run({}, asking);
  CHECK(error_of([&] { graphs.run({}, asking); }).find("while a CUDA graph is captured") !=
        std::string::npos);
  run.trainer.step(batch);  // goes on as before
  CHECK(run.weights() != before);
}
