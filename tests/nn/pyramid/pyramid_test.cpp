#include "nn/pyramid/pyramid.hpp"

#include <cmath>
#include <vector>

#include "autograd/gradcheck.hpp"
#include "autograd/ops.hpp"
#include "nn/pyramid/instance_norm.hpp"
#include "nn/pyramid/unfold.hpp"
#include "tensor/random/random.hpp"
#include "tests/support/doctest.hpp"

using namespace skytape;

namespace {

Tensor numbers(const Shape& shape, std::uint64_t seed) {
  return tensor::normal(shape, Random{seed, {}}, DType::f64, Device::cpu);
}

/// A pyramid of its own store on pictures of 10 rows of 11 pixels, the last of which may be short.
struct Pyramids {
  static constexpr std::int64_t kWidth = 3, kColumns = 11, kPositions = 105;
  ParameterStore store;
  nn::Pyramid pyramid;
  Pyramids() : pyramid(store, "pool", kWidth, kPositions, kColumns) {
    store.pack(DType::f64, Device::cpu, 1);
  }
  [[nodiscard]] std::vector<double> operator()(const Tensor& x) const {
    Tape tape(Tape::Mode::eval);
    return pyramid(tape.input(x)).value().to_vector();
  }
};

}  // namespace

TEST_CASE("windows hold what lies around every stride-th place, and zeros outside the picture") {
  constexpr std::int64_t kB = 2, kRows = 3, kColumns = 4, kE = 2, kSide = 3;
  const Tensor x = numbers({kB, kRows * kColumns, kE}, 1);
  const std::vector<double> xs = x.to_vector();
  for (const std::int64_t stride : {1, 2, 3}) {
    CAPTURE(stride);
    Tape tape(Tape::Mode::eval);
    const Tensor y = nn::unfold(tape.input(x), {kColumns, kSide, stride}).value();
    const std::int64_t rows = (kRows + stride - 1) / stride,
                       across = (kColumns + stride - 1) / stride;
    REQUIRE(y.shape() == Shape({kB, rows * across, kSide * kSide * kE}));
    const std::vector<double> ys = y.to_vector();
    std::size_t at = 0;
    for (std::int64_t b = 0; b < kB; ++b) {
      for (std::int64_t m = 0; m < rows * across; ++m) {
        for (std::int64_t tap = 0; tap < kSide * kSide; ++tap) {
          const std::int64_t r = m / across * stride + tap / kSide - 1;
          const std::int64_t c = m % across * stride + tap % kSide - 1;
          const bool inside = r >= 0 && r < kRows && c >= 0 && c < kColumns;
          for (std::int64_t e = 0; e < kE; ++e) {
            const std::int64_t from = ((b * kRows + r) * kColumns + c) * kE + e;
            CHECK(ys[at++] == (inside ? xs[static_cast<std::size_t>(from)] : 0));
          }
        }
      }
    }
  }
}

TEST_CASE("an instance norm brings each channel of each picture to mean 0 and variance 1") {
  constexpr std::int64_t kB = 2, kN = 50, kE = 3;
  Tape tape(Tape::Mode::eval);
  const auto constant = [](double v) { return Tensor::full({kE}, v, DType::f64, Device::cpu); };
  const Tensor x = numbers({kB, kN, kE}, 2);
  const std::vector<double> y =
      nn::instance_norm(tape.input(x), tape.input(constant(2)), tape.input(constant(5)))
          .value()
          .to_vector();
  for (std::int64_t b = 0; b < kB; ++b) {
    for (std::int64_t e = 0; e < kE; ++e) {
      double mean = 0, square = 0;
      for (std::int64_t n = 0; n < kN; ++n) {
        const double v = (y[static_cast<std::size_t>((b * kN + n) * kE + e)] - 5) / 2;
        mean += v / kN;
        square += v * v / kN;
      }
      CHECK(std::abs(mean) < 1e-12);
      CHECK(square == doctest::Approx(1).epsilon(1e-4));
    }
  }
}

TEST_CASE("a pyramid halves pictures until they are smaller than its top, once at least") {
  const auto blocks = [](std::int64_t positions, std::int64_t columns) {
    ParameterStore store;
    const nn::Pyramid pyramid(store, "pool", 4, positions, columns);
    int found = 0;
    while (store.find("pool.block_" + std::to_string(found) + ".conv1.weight") != nullptr) ++found;
    return found;
  };
  CHECK(blocks(4, 2) == 2);
  CHECK(blocks(1024, 32) == 6);   // 16, 8, 4
  CHECK(blocks(32 * 2, 2) == 6);  // as a tall one, or a wide one, of as many
  CHECK(blocks(2 * 32, 32) == 6);
  CHECK(blocks(15 * 15, 15) == 4);  // 8, 4: what is odd is rounded up
  CHECK(blocks(16384, 128) == 10);  // 64, 32, 16, 8, 4
}

TEST_CASE("a pyramid takes a trimmed picture for one that ends in zeros") {
  const Pyramids pyramid;
  const Tensor x = numbers({2, 70, Pyramids::kWidth}, 3);
  Tape tape(Tape::Mode::eval);
  const std::vector<Var> parts = {
      tape.input(x), tape.input(Tensor::zeros({2, 35, Pyramids::kWidth}, DType::f64, Device::cpu))};
  CHECK(pyramid(x) == pyramid(concat(parts, 1).value()));
}

TEST_CASE("what a pyramid says of a picture does not depend on the others of its batch") {
  const Pyramids pyramid;
  const Tensor x = numbers({2, 105, Pyramids::kWidth}, 4);
  const std::vector<double> both = pyramid(x), second = pyramid(x.slice(1, 2));
  for (std::size_t e = 0; e < second.size(); ++e) {
    CHECK(both[Pyramids::kWidth + e] == doctest::Approx(second[e]).epsilon(1e-12));
  }
}

TEST_CASE("a pyramid passes gradcheck, all its parameters included") {
  Pyramids pyramid;
  std::vector<Parameter*> parameters;
  for (Parameter& p : pyramid.store.parameters()) parameters.push_back(&p);
  const GradcheckReport report =
      gradcheck([&](Tape&, std::span<const Var> v) { return pyramid.pyramid(v[0]); },
                {numbers({2, 105, Pyramids::kWidth}, 5)}, {}, {"x"}, parameters);
  CHECK_MESSAGE(report.passed, report.to_string());
}
