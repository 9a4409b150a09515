// The inputs that an encoder of BERT's kind hands to its layers.
#include "nn/bert/bert_encoder.hpp"

#include "attention/registry.hpp"
#include "tests/support/doctest.hpp"
#include "tests/support/numbers.hpp"

using namespace skytape;
using test::integers;

namespace {

/// A small encoder of three layers, width 8, two heads.
nn::BertConfig three_layers(const std::string& attention, const attention::OptionValues& options) {
  nn::BertConfig config;
  config.attention = attention;
  config.attention_options = options;
  config.vocabulary = 12;
  config.positions = 16;
  config.layers = 3;
  config.width = 8;
  config.ff_width = 12;
  config.heads = 2;
  return config;
}

}  // namespace

TEST_CASE("each layer of an encoder draws numbers of its own, from the step's") {
  const attention::OptionValues options = {{"features", "2"}};
  const nn::BertEncoder encoder(three_layers("skyformer", options), DType::f64, Device::cpu, 3);
  const nn::BertInput input = {integers({1, 2, 3, 4, 5, 6, 7, 8, 9, 0}, {2, 5}),
                               integers({0, 1, 2, 3, 4, 0, 1, 2, 3, 4}, {2, 5}),
                               Tensor::zeros({2, 5}, DType::i32, Device::cpu),
                               Tensor::from(std::vector<double>{1, 1, 1, 1, 1, 1, 1, 1, 1, 0},
                                            {2, 5}, DType::f64, Device::cpu)};
  nn::StepContext step = nn::answer_context(5);
  int layers = 0;
  step.observe = [&](int layer, const attention::Inputs& in, const Tensor& out) {
    ++layers;
    ParameterStore none;
    const auto method = attention::find("skyformer").make({layer, 2, 4, 16, "", &none, 8}, options);
    /// Returns the method's output with the random numbers of a layer.
    const auto of_layer = [&](int other) {
      attention::Call call;
      call.alone = true;
      call.random = fork(step.random, Purpose::attention).fork(static_cast<std::uint64_t>(other));
      return method->forward(in, method->draw(in, call), call).out.to_vector();
    };
    CAPTURE(layer);
    for (int other = 0; other < 3; ++other) {
      CHECK((of_layer(other) == out.to_vector()) == (other == layer));
    }
  };
  Tape tape(Tape::Mode::eval);
  (void)encoder.encode(tape, input, step);
  CHECK(layers == 3);
}

TEST_CASE("each layer of an encoder makes its method by its own number") {
  const nn::BertEncoder encoder(three_layers("linformer", {{"layer_features", "3:5:2"}}),
                                DType::f64, Device::cpu, 3);
  std::vector<std::int64_t> features;
  for (const Parameter& p : encoder.parameters().parameters()) {
    if (p.name.ends_with(".attn.E")) features.push_back(p.shape[p.shape.rank() - 2]);
  }
  CHECK(features == std::vector<std::int64_t>{3, 5, 2});
}

TEST_CASE("an encoder's layers have its norms' epsilon, and heads that divide its width") {
  nn::BertConfig config = three_layers("softmax", {});
  const auto encoded = [&](double epsilon) {
    config.norm_epsilon = epsilon;
    nn::BertEncoder encoder(config, DType::f64, Device::cpu, 3);
    Parameter* const first = encoder.parameters().find("model.embeddings.norm.weight");
    first->value.fill(0);  // so that the first norm's epsilon does not matter
    Tape tape(Tape::Mode::eval);
    const nn::BertInput input = {integers({1, 2}, {1, 2}), integers({0, 1}, {1, 2}),
                                 integers({0, 0}, {1, 2}),
                                 Tensor::full({1, 2}, 1, DType::f64, Device::cpu)};
    return encoder.encode(tape, input, {}).value().to_vector();
  };
  CHECK(encoded(1e-5) != encoded(1e-2));
  config.heads = 3;
  CHECK_THROWS_WITH_AS((void)encoded(1e-5), doctest::Contains("width 8 is no multiple of 3 heads"),
                       Error);
}
