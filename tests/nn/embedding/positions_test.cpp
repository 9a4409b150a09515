#include "nn/embedding/positions.hpp"

#include <cmath>
#include <vector>

#include "attention/registry.hpp"
#include "autograd/ops.hpp"
#include "nn/model.hpp"
#include "tensor/random/random.hpp"
#include "tests/data/synthetic.hpp"
#include "tests/support/doctest.hpp"

using namespace skytape;
using data::synthetic::error_of;

namespace {

std::vector<double> turned(const Tensor& x, const Tensor& angles) {
  Tape tape(Tape::Mode::eval);
  return nn::rotary(tape.input(x), angles).value().to_vector();
}

Tensor numbers(const Shape& shape, std::uint64_t seed) {
  return tensor::normal(shape, Random{seed, {}}, DType::f64, Device::cpu);
}

}  // namespace

TEST_CASE("rotary positions keep lengths and make scores a function of the distance") {
  constexpr std::int64_t kN = 40, kD = 6;
  const Tensor angles = nn::rotary_angles(100)({kN, kD}, {});
  const std::vector<double> one = numbers({kD}, 1).to_vector(), two = numbers({kD}, 2).to_vector();
  const auto everywhere = [&](const std::vector<double>& row) {  // the row at every position
    std::vector<double> all;
    for (std::int64_t i = 0; i < kN; ++i) all.insert(all.end(), row.begin(), row.end());
    return turned(Tensor::from(all, {1, 1, kN, kD}, DType::f64, Device::cpu), angles);
  };
  const std::vector<double> q = everywhere(one), k = everywhere(two);
  const auto score = [&](std::int64_t i, std::int64_t j) {
    double total = 0;
    for (std::int64_t c = 0; c < kD; ++c) {
      total += q[static_cast<std::size_t>(i * kD + c)] * k[static_cast<std::size_t>(j * kD + c)];
    }
    return total;
  };
  double plain = 0;
  for (std::size_t c = 0; c < one.size(); ++c) plain += one[c] * two[c];
  for (std::int64_t i = 0; i < kN; ++i) CHECK(score(i, i) == doctest::Approx(plain));
  for (std::int64_t i = 0; i + 7 < kN; ++i) {
    CHECK(score(i, i + 7) == doctest::Approx(score(0, 7)));
    CHECK(score(i + 7, i) == doctest::Approx(score(7, 0)));
  }
  CHECK(std::abs(score(0, 7) - score(7, 0)) > 1e-3);  // direction shows
}

TEST_CASE("the table's angles are exact far along a sequence") {
  const Tensor angles = nn::rotary_angles(10000)({5000, 4}, {});
  const std::vector<double> table = angles.to_vector();
  CHECK(table[4999 * 4] == std::cos(4999.0));
  CHECK(table[4999 * 4 + 1] == doctest::Approx(std::cos(49.99)).epsilon(1e-14));
  CHECK(table[4999 * 4 + 3] == doctest::Approx(std::sin(49.99)).epsilon(1e-14));
  CHECK(table[0] == 1);
  CHECK(table[2] == 0);
}

TEST_CASE("sinusoidal positions are waves as high as the tokens' vectors") {
  const std::vector<double> table = nn::sinusoidal_positions()({300, 16}, {}).to_vector();
  double squares = 0;
  for (const double x : table) squares += x * x;
  CHECK(std::sqrt(squares / static_cast<double>(table.size())) ==
        doctest::Approx(nn::kEmbeddingDeviation).epsilon(0.01));
  const double height = table[1];  // cos 0
  CHECK(table[16 * 5] == doctest::Approx(height * std::sin(5.0)));
  CHECK(table[16 * 5 + 3] == doctest::Approx(height * std::cos(5.0 / std::pow(10000, 2.0 / 16))));
}

TEST_CASE("places before the last token are counted from the mask, padding has none") {
  const std::vector<double> mask = {1, 1, 1, 0,   //
                                    0, 1, 0, 1,   // a hole is no end
                                    0, 0, 0, 0};  // no token at all
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Tensor m = Tensor::from(mask, {3, 4}, dtype, Device::cpu);
    CHECK(nn::to_last_token(m).to_vector() ==
          std::vector<double>{2, 1, 0, 0, 3, 2, 1, 0, 0, 0, 0, 0});
  }
  CHECK_THROWS_AS((void)nn::to_last_token(Tensor::zeros({3}, DType::f32, Device::cpu)), Error);
}

TEST_CASE(
    "behind the first separator tokens are of the second text, without one all of the first") {
  const std::vector<std::int32_t> ids = {
      3, 9, 4, 5,  //
      9, 9, 4, 0,  // what is behind the first one is the second text's
      3, 4, 5, 0,  //
      3, 4, 5, 9};
  const Tensor rows = Tensor::from(ids, {4, 4}, DType::i32, Device::cpu);
  CHECK(nn::token_types(rows, 9).to_vector() ==
        std::vector<double>{0, 0, 1, 1, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0});
  CHECK(nn::token_types(rows, -1).to_vector() == std::vector<double>(16, 0));
  CHECK_THROWS_AS((void)nn::token_types(rows.slice(0, 1).reshape({4}), 9), Error);
}
