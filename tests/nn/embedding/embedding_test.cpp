#include "nn/embedding/embedding.hpp"

#include <vector>

#include "autograd/ops.hpp"
#include "tests/support/doctest.hpp"

using namespace skytape;

TEST_CASE("intensity makes a pixel's vector depend on its grey value in a straight line") {
  nn::EmbeddingConfig config;
  config.vocabulary = 258;  // two ids more than there are greys
  config.nominal_length = 4;
  config.width = 3;
  config.positions = nn::Positions::none;
  config.intensity = true;
  ParameterStore store;
  const nn::Embedding embedding(store, "e", config);
  store.pack(DType::f64, Device::cpu, 7);
  const std::vector<std::int32_t> ids = {0, 255, 51, 257};
  const std::vector<double> levels = {-1, 1, -0.6, 0};
  const Tensor mask =
      Tensor::from(std::vector<double>{1, 1, 1, 1}, {1, 4}, DType::f64, Device::cpu);
  Tape tape;
  const Var x = embedding(tape, Tensor::from(ids, {1, 4}, DType::i32, Device::cpu), mask);
  const std::vector<double> out = x.value().to_vector();  // [1, 4, 3]
  const std::vector<double> tokens = embedding.tokens->value.to_vector();
  const std::vector<double> slope = embedding.slope->value.to_vector();
  const std::vector<double> constant = embedding.constant->value.to_vector();
  for (std::size_t i = 0; i < ids.size(); ++i) {
    for (std::size_t c = 0; c < 3; ++c) {
      CHECK(out[3 * i + c] == doctest::Approx(tokens[static_cast<std::size_t>(ids[i]) * 3 + c] +
                                              levels[i] * slope[c] + constant[c]));
    }
  }
  tape.backward(sum_all(x));
  for (const double g : embedding.slope->grad.to_vector()) {
    CHECK(g == doctest::Approx(-0.6));  // the sum of the levels
  }
}
