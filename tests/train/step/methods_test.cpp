// Training with every attention method: a loop over the registry. A new method is served without an
// edit here.
#include <cmath>

#include "attention/registry.hpp"
#include "tensor/core/storage.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tests/support/doctest.hpp"
#include "train/step/trainer.hpp"

using namespace skytape;
using namespace skytape::train;

namespace {

using attention::OptionValues;
using attention::Spec;

nn::ModelConfig small_model(const Spec& spec, std::int64_t length, const OptionValues& options) {
  nn::ModelConfig config;
  config.attention = spec.name;
  config.attention_options = options;
  if (spec.has_option("features") && !options.contains("features")) {
    config.attention_options["features"] = "8";
  }
  config.vocabulary = 16;
  config.classes = 2;
  config.nominal_length = length;
  config.width = 16;
  config.ff_width = 16;
  config.head_width = 8;
  return config;
}

/// Examples of the given lengths; an example's label says whether its second token is above 8.
data::Batch make_batch(const std::vector<std::int32_t>& lengths, std::int64_t width) {
  data::Batch batch;
  batch.size = static_cast<std::int64_t>(lengths.size());
  batch.width = batch.nominal_length = width;
  batch.lengths[0] = batch.unmasked[0] = lengths;
  for (std::size_t b = 0; b < lengths.size(); ++b) {
    for (std::int64_t j = 0; j < width; ++j) {
      const bool token = j < lengths[b];
      const auto id = static_cast<std::int32_t>(1 + (j * j + 5 * static_cast<int>(b)) % 15);
      batch.ids[0].push_back(token ? id : 0);
      batch.mask[0].push_back(token ? 1.0f : 0.0f);
    }
    batch.labels.push_back(batch.ids[0][b * static_cast<std::size_t>(width) + 1] > 8 ? 1 : 0);
  }
  return batch;
}

/// Gradient of the first step.
std::vector<double> gradient(const nn::ModelConfig& config, const data::Batch& batch,
                             const MicrobatchLimits& limits) {
  nn::Model model(config, DType::f32, Device::cpu, 3);
  Trainer trainer(model, {}, {1e-3, 10, 2}, 3, limits);
  trainer.step(batch);
  return model.parameters().gradients().to_vector();
}

double norm(const std::vector<double>& x) {
  double sum = 0;
  for (const double value : x) sum += value * value;
  return std::sqrt(sum);
}

double distance(std::vector<double> x, const std::vector<double>& y) {
  for (std::size_t i = 0; i < x.size(); ++i) x[i] -= y[i];
  return norm(x);
}

}  // namespace

TEST_CASE("three steps with every method move every parameter, stay finite and lower the loss") {
  const data::Batch batch = make_batch({64, 40, 17, 52}, 64);
  for (const Spec& spec : attention::registry()) {
    INFO(spec.name);
    nn::ModelConfig config = small_model(spec, 64, {});
    config.dropout = 0;
    nn::Model model(config, DType::f32, Device::cpu, 5);
    const std::vector<double> before = model.parameters().values().to_vector();
    Trainer trainer(model, {}, {2e-2, 10, 2}, 5, {});
    std::vector<double> losses;
    for (int step = 0; step < 3; ++step) {
      trainer.step(batch);
      losses.push_back(trainer.take_metrics().loss);
      CHECK(tensor::all_finite(model.parameters().gradients()));
    }
    CHECK(tensor::all_finite(model.parameters().values()));
    CHECK(losses[2] < losses[0]);
    std::size_t still = 0;
    const std::vector<double> after = model.parameters().values().to_vector();
    for (std::size_t i = 0; i < after.size(); ++i) still += after[i] == before[i];
    // Rows of the position table and the vocabulary that no token uses, and what is frozen.
    CHECK(still < after.size() / 2);
  }
}

TEST_CASE("a batch in microbatches gives its gradient unless the method needs whole batches") {
  const data::Batch batch = make_batch({64, 40, 17, 52, 30}, 64);
  int at_once = 0;
  for (const Spec& spec : attention::registry()) {
    std::vector<OptionValues> settings = {{}};
    for (const attention::OptionInfo& option : spec.options) {
      const bool may_couple = option.key == "inverse_start" || option.key == "form";
      if (may_couple && option.range.find("official") != std::string::npos) {
        settings.push_back({{option.key, "official"}});
      }
    }
    for (const OptionValues& options : settings) {
      INFO(spec.name, options.empty() ? "" : " as the papers' code");
      const nn::ModelConfig config = small_model(spec, 64, options);
      ParameterStore scratch;
      const bool whole_batch =
          spec.make({0, config.heads, config.head_width, 64, "", &scratch, config.width},
                    config.attention_options)
              ->needs_whole_batch();
      const std::vector<double> whole = gradient(config, batch, {});
      const double difference = distance(gradient(config, batch, {1, 64}), whole) / norm(whole);
      at_once += whole_batch;
      if (whole_batch) {
        CHECK(difference > 5e-6);
      } else {
        CHECK(difference < 2e-6);  // rounding
      }
    }
  }
  CHECK(at_once > 0);  // else nothing has shown that the difference would be seen
}

TEST_CASE("memory of a step is linear in the length with every method") {
  for (const Spec& spec : attention::registry()) {
    INFO(spec.name);
    const auto peak = [&](std::int32_t length) {
      nn::Model model(small_model(spec, length, {}), DType::f32, Device::cpu, 5);
      Trainer trainer(model, {}, {1e-3, 10, 2}, 5, {});
      const std::int64_t before = memory_stats(Device::cpu).live_bytes;
      reset_peak_bytes(Device::cpu);
      trainer.step(make_batch({length}, length));
      return memory_stats(Device::cpu).peak_bytes - before;
    };
    // An n x n array of f32 would add 16.8 MB at 2,048 and 1 MB at 512: a factor of 16.
    CHECK(static_cast<double>(peak(2048)) < 4.6 * static_cast<double>(peak(512)));
  }
}
