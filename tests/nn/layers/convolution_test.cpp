#include "nn/layers/convolution.hpp"

#include <vector>

#include "tensor/random/random.hpp"
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
