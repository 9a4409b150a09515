#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "attention/registry.hpp"
#include "autograd/tape_print.hpp"
#include "nn/model.hpp"
#include "tests/autograd/op_table.hpp"
#include "tests/support/doctest.hpp"

using namespace skytape;

namespace {

constexpr std::int64_t kPositions = 16;

nn::ModelConfig small_config(const std::string& attention) {
  nn::ModelConfig config;
  config.attention = attention;
  config.vocabulary = 7;
  config.classes = 3;
  config.nominal_length = kPositions;
  config.width = 8;
  config.ff_width = 12;
  config.head_width = 4;
  return config;
}

/// Returns a configuration for each option that adds operations to the tape.
std::vector<nn::ModelConfig> with_each_option() {
  std::vector<nn::ModelConfig> all;
  const auto with = [&](const std::function<void(nn::ModelConfig&)>& change) {
    change(all.emplace_back(small_config("skyformer")));
  };
  with([](auto& c) { c.conv_width = 3; });
  with([](auto& c) { c.norm = nn::Norm::post; });
  with([](auto& c) { c.ngrams = 2; });
  with([](auto& c) { c.both_ends = true; });
  for (const auto positions : {nn::Positions::sinusoidal, nn::Positions::rotary}) {
    with([&](auto& c) { c.positions = positions; });
  }
  for (const auto pooling : {nn::Pooling::mean, nn::Pooling::first, nn::Pooling::cls,
                             nn::Pooling::max, nn::Pooling::attention}) {
    with([&](auto& c) { c.pooling = pooling; });
  }
  with([](auto& c) {
    c.sequences = 2;
    c.pair_cosine = true;
  });
  with([](auto& c) {
    c.separator = 3;
    c.token_types = true;
  });
  const auto of_pictures = [](nn::ModelConfig& c) {
    c.pixels = true;
    c.columns = 4;
    c.vocabulary = 257;
  };
  with([&](auto& c) {
    of_pictures(c);
    c.patch = 3;
  });
  with([&](auto& c) {
    of_pictures(c);
    c.pyramid = true;
  });
  with([](auto& c) { c.objective = nn::Objective::predict_masked; });
  with([&](auto& c) {
    of_pictures(c);
    c.objective = nn::Objective::predict_masked;
  });
  return all;
}

/// Returns the names of the nodes of one training step, loss included.
std::vector<std::string> recorded_by(const nn::ModelConfig& config) {
  const nn::Model model(config, DType::f64, Device::cpu, 1);
  const Shape shape = {2, kPositions}, targets = {2, 1};
  nn::ModelInput input;
  nn::MaskedTargets hidden;
  for (std::size_t sequence = 0; sequence < static_cast<std::size_t>(config.sequences);
       ++sequence) {
    input.ids[sequence] = Tensor::full(shape, 3, DType::i32, Device::cpu);
    input.mask[sequence] = Tensor::full(shape, 1, DType::f64, Device::cpu);
    hidden.at[sequence] = Tensor::full(targets, 2, DType::i32, Device::cpu);
    hidden.ids[sequence] = Tensor::full(targets, 3, DType::i32, Device::cpu);
    hidden.weight[sequence] = Tensor::full(targets, 0.5, DType::f64, Device::cpu);
  }
  nn::StepContext step;
  step.training = true;
  Tape tape;
  if (config.objective == nn::Objective::predict_masked) {
    (void)model.masked_loss(tape, input, hidden, step);
  } else {
    (void)model.class_loss(tape, input, Tensor::zeros({2}, DType::i32, Device::cpu), step, 2);
  }
  return names(tape);
}

}  // namespace

TEST_CASE("every op that a model records has a row in the op table") {
  // The coarse op of the methods has the registry's own loop of checks.
  const std::set<std::string> elsewhere = {"leaf", "attention"};
  std::set<std::string> recorded;
  std::vector<nn::ModelConfig> configs = with_each_option();
  for (const attention::Spec& spec : attention::registry()) {
    for (const int sequences : {1, 2}) {
      configs.push_back(small_config(spec.name));
      configs.back().sequences = sequences;
    }
  }
  for (const nn::ModelConfig& config : configs) {
    for (const std::string& name : recorded_by(config)) recorded.insert(name);
  }
  CHECK(recorded.size() > elsewhere.size());
  for (const std::string& name : recorded) {
    CHECK_MESSAGE((elsewhere.count(name) == 1 || test::find_op(name) != nullptr), name,
                  " is recorded by a model, but has no row in the op table");
  }
}
