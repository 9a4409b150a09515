#include "nn/embedding/embedding.hpp"

#include <cmath>
#include <string>
#include <vector>

#include "autograd/gradcheck.hpp"
#include "nn/embedding/patches.hpp"
#include "tests/support/doctest.hpp"

using namespace skytape;

namespace {

Tensor ids_of(const std::vector<std::int32_t>& ids, const Shape& shape) {
  return Tensor::from(ids, shape, DType::i32, Device::cpu);
}

/// Checks that an embedding behind dropout of rate 0 gives the bits of the embedding alone.
void check_behind_dropout(const nn::ModelConfig& config, const Tensor& ids, const Tensor& mask) {
  ParameterStore store;
  const nn::Embedding embedding(store, "e", config);
  store.pack(DType::f64, Device::cpu, 1);
  Tape tape(Tape::Mode::eval);
  CHECK(embedding.dropped(tape, ids, mask, {}).value().to_vector() ==
        embedding(tape, ids, mask).value().to_vector());
}

}  // namespace

TEST_CASE("a pixel sees the intensities of the square around it, and nothing outside the picture") {
  // Two pictures of 2 x 3 pixels; 256 and 257 stand for no intensity.
  const Tensor ids = ids_of({0, 255, 51, 257, 0, 255, 255, 255, 255, 0, 0, 256}, {2, 6});
  const std::vector<double> intensities =
      nn::patch_intensities(ids, 3, 3, DType::f64).to_vector();  // [2, 6, 9]
  const auto square = [&](std::size_t pixel) {
    return std::vector<double>(intensities.begin() + static_cast<std::ptrdiff_t>(9 * pixel),
                               intensities.begin() + static_cast<std::ptrdiff_t>(9 * pixel + 9));
  };
  CHECK(square(0) == std::vector<double>{0, 0, 0, 0, -1, 1, 0, 0, -1});
  const std::vector<double> middle = square(4);
  CHECK(middle[2] == doctest::Approx(-0.6));
  CHECK(middle[3] == 0);  // 257
  CHECK(middle[5] == 1);
  CHECK(middle[8] == 0);                                                 // below the picture
  CHECK(square(6) == std::vector<double>{0, 0, 0, 0, 1, 1, 0, -1, -1});  // of the second alone
  CHECK(square(8) == std::vector<double>{0, 0, 0, 1, 1, 0, -1, 0, 0});   // at the right edge
  for (const std::int64_t side : {2, 0})
    CHECK_THROWS_AS((void)nn::patch_intensities(ids, 3, side, DType::f64), Error);
}

TEST_CASE("the waves of a square are at right angles, and as long as their frequency") {
  ParameterStore store;
  Parameter& waves = store.add("waves", {9, 9}, nn::patch_waves(), false);
  store.pack(DType::f64, Device::cpu, 1);
  const std::vector<double> w = waves.value.to_vector();
  for (std::size_t i = 0; i < 9; ++i) {
    for (std::size_t j = 0; j < 9; ++j) {
      double dot = 0;
      for (std::size_t p = 0; p < 9; ++p) dot += w[9 * p + i] * w[9 * p + j];
      const double squared = static_cast<double>(i / 3 * (i / 3) + i % 3 * (i % 3));
      const double expected = i != j ? 0 : i == 0 ? 4.0 / 9 : squared;
      CHECK(dot == doctest::Approx(expected));
    }
  }
}

TEST_CASE("a look-up in one op is the sum of the vectors, with places from either end") {
  const Tensor ids = ids_of({4, 1, 2, 0, 3, 3, 1, 2}, {2, 4});
  const Tensor mask =
      Tensor::from(std::vector<double>{1, 1, 1, 0, 1, 1, 1, 1}, {2, 4}, DType::f64, Device::cpu);
  for (const nn::Positions positions : {nn::Positions::none, nn::Positions::learned}) {
    for (const bool both_ends : {false, true}) {
      nn::ModelConfig config;
      config.vocabulary = 5;
      config.nominal_length = 6;
      config.width = 3;
      config.positions = positions;
      config.both_ends = both_ends;
      check_behind_dropout(config, ids, mask);
    }
  }
}

TEST_CASE("patches are a linear map of the intensities, and pass gradcheck") {
  nn::ModelConfig config;
  config.vocabulary = 257;
  config.nominal_length = 6;
  config.width = 2;
  config.positions = nn::Positions::none;
  config.patch = 3;
  config.columns = 3;
  ParameterStore store;
  const nn::Embedding embedding(store, "e", config);
  store.pack(DType::f64, Device::cpu, 7);
  const Tensor mask = Tensor::full({1, 6}, 1, DType::f64, Device::cpu);
  const auto at = [&](std::int32_t grey) {  // the middle pixel's vector, where all are alike
    Tape tape(Tape::Mode::eval);
    const std::vector<std::int32_t> ids(6, grey);
    embedding.tokens->value.fill(0);
    return embedding(tape, ids_of(ids, {1, 6}), mask).value().to_vector()[8];
  };
  const double black = at(0), white = at(255);
  CHECK(std::abs(white - black) > 1e-3);
  CHECK(at(51) == doctest::Approx(black + 0.2 * (white - black)));

  std::vector<Parameter*> parameters = {embedding.patches, embedding.constant};
  const Tensor ids = ids_of({3, 255, 51, 256, 0, 90}, {1, 6});
  const GradcheckReport report =
      gradcheck([&](Tape& tape, std::span<const Var>) { return embedding(tape, ids, mask); }, {},
                {}, {}, parameters);
  CHECK_MESSAGE(report.passed, report.to_string());
}

TEST_CASE("an embedding behind dropout adds what the embedding does, with each option") {
  const Tensor ids = ids_of({4, 1, 2, 0, 3, 3, 1, 2}, {2, 4});
  const Tensor mask = Tensor::full({2, 4}, 1, DType::f64, Device::cpu);
  for (const char* option : {"token_types", "patch", "ngrams"}) {
    INFO(option);
    nn::ModelConfig config;
    config.vocabulary = 5;
    config.nominal_length = 4;
    config.width = 3;
    const std::string asked = option;
    config.token_types = asked == "token_types";
    config.separator = 1;
    config.columns = 2;
    config.patch = asked == "patch" ? 3 : 0;
    config.ngrams = asked == "ngrams" ? 2 : 0;
    config.ngram_rows = 7;
    check_behind_dropout(config, ids, mask);
  }
}

TEST_CASE("waves of positions and of patches are constants, and tables of places know their end") {
  nn::ModelConfig config;
  config.nominal_length = 4;
  config.width = 3;
  config.positions = nn::Positions::sinusoidal;
  config.columns = 2;
  config.patch = 3;
  ParameterStore store;
  const nn::Embedding embedding(store, "e", config);
  store.pack(DType::f64, Device::cpu, 1);
  for (const char* name : {"e.position_waves", "e.patch_waves"}) {
    REQUIRE(store.find(name) != nullptr);
    CHECK_FALSE(store.find(name)->trainable);
  }
  Tape tape(Tape::Mode::eval);
  const Tensor ids = ids_of({4, 1, 2, 0, 3}, {1, 5});
  CHECK_THROWS_WITH_AS((void)embedding(tape, ids, ones_like(store.values(), {1, 5})),
                       doctest::Contains("embedding: 5 positions, but the table has 4"), Error);
}
