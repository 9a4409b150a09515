// State without gradient that a step moves: Routing's centroids, by whatever way the step computes.
#include <cmath>

#include "tests/data/synthetic.hpp"
#include "tests/support/doctest.hpp"
#include "tests/train/step/small_step.hpp"
#include "train/formats/safetensors.hpp"
#include "train/run/checkpoint.hpp"
#include "train/step/evaluate.hpp"
#include "train/step/trainer.hpp"

using namespace skytape;
using namespace skytape::train;

namespace {

nn::ModelConfig small_model(int sequences = 1) {
  nn::ModelConfig config;
  config.attention = "routing";
  config.attention_options = {{"clusters", "4"}, {"decay", "0.9"}};
  config.vocabulary = 16;
  config.classes = 2;
  config.nominal_length = 32;
  config.sequences = sequences;
  config.width = 8;
  config.ff_width = 12;
  config.head_width = 4;
  return config;
}

std::vector<const Parameter*> averages(const nn::Model& model) {
  std::vector<const Parameter*> found;
  for (const Parameter& p : model.parameters().parameters()) {
    if (p.decay > 0) found.push_back(&p);
  }
  return found;
}

/// All centroids after a step.
std::vector<double> centroids_after_step(const MicrobatchLimits& limits, int sequences) {
  nn::Model model(small_model(sequences), DType::f32, Device::cpu, 3);
  Trainer trainer(model, {}, {1e-3, 10, 2}, 3, limits);
  trainer.step(test::seven_examples(sequences));
  std::vector<double> all;
  for (const Parameter* p : averages(model)) {
    const std::vector<double> values = p->value.to_vector();
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

}  // namespace

TEST_CASE("a step moves averages by their decay toward its sums, whatever the optimiser does") {
  nn::Model model(small_model(), DType::f32, Device::cpu, 3);
  nn::AdamWConfig adamw;
  adamw.weight_decay = 0.5;
  adamw.clip_value = 1e-3;
  Trainer trainer(model, adamw, {1e-1, 10, 2}, 3, {});
  const std::vector<const Parameter*> moving = averages(model);
  REQUIRE(moving.size() == 2);  // one of each layer
  for (int step = 0; step < 2; ++step) {
    std::vector<std::vector<double>> before;
    for (const Parameter* p : moving) before.push_back(p->value.to_vector());
    trainer.step(test::seven_examples(1));
    for (std::size_t i = 0; i < moving.size(); ++i) {
      const std::vector<double> after = moving[i]->value.to_vector(),
                                sums = moving[i]->grad.to_vector();
      double largest = 0;
      for (std::size_t e = 0; e < after.size(); ++e) {
        CHECK(after[e] == doctest::Approx(0.9 * before[i][e] + 0.1 * sums[e]).epsilon(1e-5));
        largest = std::max(largest, std::abs(sums[e]));
      }
      CHECK(largest > 1);
    }
  }
}

TEST_CASE("microbatches and sequences move averages as the whole batch does") {
  for (const int sequences : {1, 2}) {
    const std::vector<double> whole = centroids_after_step({}, sequences);
    double norm = 0;
    for (const double x : whole) norm += x * x;
    for (const MicrobatchLimits limits : {MicrobatchLimits{2}, {7}, {1, 40}}) {
      const std::vector<double> parts = centroids_after_step(limits, sequences);
      double difference = 0;
      for (std::size_t i = 0; i < whole.size(); ++i) {
        difference += (whole[i] - parts[i]) * (whole[i] - parts[i]);
      }
      CHECK(std::sqrt(difference / norm) < 1e-5);
    }
  }
}

TEST_CASE("averages go on from a checkpoint bit for bit") {
  const data::synthetic::Folder folder;
  const auto path = folder.path() / "last.safetensors";
  nn::Model model(small_model(), DType::f32, Device::cpu, 5);
  Trainer trainer(model, {}, {1e-2, 20, 4}, 5, {2});
  for (int i = 0; i < 3; ++i) trainer.step(test::seven_examples(1));
  RunState state;
  state.step = 3;
  save_checkpoint(path, model, trainer, state, {{"seed", 5}});

  nn::Model other(small_model(), DType::f32, Device::cpu, 6);
  Trainer second(other, {}, {1e-2, 20, 4}, 5, {2});
  const SafetensorsFile file = read_safetensors(path);
  load_training(file, path, other, second);
  for (int i = 0; i < 2; ++i) {
    trainer.step(test::seven_examples(1));
    second.step(test::seven_examples(1));
  }
  CHECK(model.parameters().values().to_vector() == other.parameters().values().to_vector());
}

TEST_CASE("a forward pass without training leaves averages alone") {
  nn::Model model(small_model(), DType::f32, Device::cpu, 5);
  const std::vector<double> before = model.parameters().values().to_vector();
  const data::Batch batch = test::seven_examples(1);
  nn::ModelInput input;
  const Shape shape{batch.size, batch.width};
  input.ids[0] = Tensor::from(batch.ids[0], shape, DType::i32, Device::cpu);
  input.mask[0] = Tensor::from(std::vector<double>(batch.mask[0].begin(), batch.mask[0].end()),
                               shape, DType::f32, Device::cpu);
  Tape tape(Tape::Mode::eval);
  (void)model.logits(tape, input, {});
  CHECK(model.parameters().values().to_vector() == before);
}
