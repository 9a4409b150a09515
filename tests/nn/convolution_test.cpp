#include "nn/convolution.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "autograd/gradcheck.hpp"
#include "autograd/ops.hpp"
#include "tensor/random/random.hpp"
#include "tests/support/devices.hpp"
#include "tests/support/doctest.hpp"

using namespace skytape;

namespace {

Tensor numbers(const Shape& shape, std::uint64_t seed) {
  return tensor::normal(shape, Random{seed, {}}, DType::f64, Device::cpu);
}

Tensor convolved(const Tensor& x, const Tensor& weight) {
  Tape tape(Tape::Mode::eval);
  return nn::depthwise_convolution(tape.input(x), tape.input(weight)).value();
}

}  // namespace

TEST_CASE("a depthwise convolution mixes each channel with its neighbours of the same sequence") {
  for (const std::int64_t taps : {1, 3, 9}) {  // 9: wider than the sequence
    CAPTURE(taps);
    constexpr std::int64_t kB = 2, kN = 4, kE = 3;
    const Tensor x = numbers({kB, kN, kE}, 1), w = numbers({taps, kE}, 2);
    const std::vector<double> xs = x.to_vector(), ws = w.to_vector();
    const std::vector<double> y = convolved(x, w).to_vector();
    for (std::int64_t b = 0; b < kB; ++b) {
      for (std::int64_t n = 0; n < kN; ++n) {
        for (std::int64_t e = 0; e < kE; ++e) {
          double expected = 0;
          for (std::int64_t t = 0; t < taps; ++t) {
            const std::int64_t m = n + t - taps / 2;
            if (m < 0 || m >= kN) continue;
            expected += ws[static_cast<std::size_t>(t * kE + e)] *
                        xs[static_cast<std::size_t>((b * kN + m) * kE + e)];
          }
          CHECK(y[static_cast<std::size_t>((b * kN + n) * kE + e)] == doctest::Approx(expected));
        }
      }
    }
  }
}

TEST_CASE("a depthwise convolution passes gradcheck") {
  const GradcheckReport report = gradcheck(
      [](Tape&, std::span<const Var> in) {
        return sum_all(square(nn::depthwise_convolution(in[0], in[1])));
      },
      {numbers({2, 7, 3}, 1), numbers({5, 3}, 2)}, {}, {"x", "weight"});
  CHECK_MESSAGE(report.passed, report.to_string());
}

TEST_CASE("a depthwise convolution and its gradients agree between devices") {
  const auto all = [](DType dtype, Device device) {  // y, dx, dweight
    Tape tape;
    const Var x = tape.input(numbers({3, 70, 40}, 1).to(device).to(dtype));
    const Var w = tape.input(numbers({7, 40}, 2).to(device).to(dtype));
    const Var y = nn::depthwise_convolution(x, w);
    tape.backward(sum_all(square(y)));
    return std::array{y.value().to_vector(), tape.grad(x).to_vector(), tape.grad(w).to_vector()};
  };
  const auto exact = all(DType::f64, Device::cpu);
  test::for_each_kind([&](DType dtype, Device device) {
    const auto found = all(dtype, device);
    for (std::size_t part = 0; part < exact.size(); ++part) {
      REQUIRE(found[part].size() == exact[part].size());
      double worst = 0, largest = 0;
      for (std::size_t i = 0; i < exact[part].size(); ++i) {
        worst = std::max(worst, std::abs(found[part][i] - exact[part][i]));
        largest = std::max(largest, std::abs(exact[part][i]));
      }
      CAPTURE(part);
      CHECK(worst <= (dtype == DType::f32 ? 1e-5 : 1e-13) * largest);
    }
  });
}

TEST_CASE("a convolution refuses even taps and other widths") {
  CHECK_THROWS_AS((void)convolved(numbers({1, 4, 3}, 1), numbers({2, 3}, 2)), Error);
  CHECK_THROWS_AS((void)convolved(numbers({1, 4, 3}, 1), numbers({3, 2}, 2)), Error);
  CHECK_THROWS_AS((void)convolved(numbers({4, 3}, 1), numbers({3, 3}, 2)), Error);
}
