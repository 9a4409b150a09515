#include "nn/layers/convolution.hpp"

#include <vector>

#include "autograd/ops.hpp"
#include "tensor/random/random.hpp"
#include "tests/support/both_ways.hpp"

using namespace skytape;
using namespace skytape::test;

namespace {

Tensor numbers(const Shape& shape, std::uint64_t seed) {
  return tensor::normal(shape, Random{seed, {}}, DType::f64, Device::cpu);
}

/// The convolution of x alone: without residual and dropout, no row padded.
Tensor convolved(const Tensor& x, const Tensor& weight, const nn::Window& window) {
  Tape tape(Tape::Mode::eval);
  const Tensor mask = Tensor::full({x.size(0), x.size(1)}, 1, x.dtype(), x.device());
  return nn::add_convolution(tape.constant(zeros_like(x, x.shape())), tape.input(x),
                             tape.input(weight), mask, window, {})
      .value();
}

/// The convolution as a sum of shifted copies of the picture with zeros around it; a sequence is a
/// picture of one line. x: [B, N, E] with N = whole lines.
Var of_shifted_copies(Var x, Var weight, const nn::Window& window) {
  const std::int64_t b = x.size(0), n = x.size(1), e = x.size(2);
  const std::int64_t columns = window.columns > 0 ? window.columns : n;
  const auto padded = [](Var v, int axis, std::int64_t edge) {
    const Var zeros = v.tape().constant(zeros_like(v.value(), v.shape().with(axis, edge)));
    return concat({zeros, v, zeros}, axis);
  };
  const Var lines = reshape(x, {b, n / columns, columns, e});
  const Var picture = padded(padded(lines, 1, window.height / 2), 2, window.width / 2);
  Var sum;
  for (std::int64_t tap = 0; tap < window.height * window.width; ++tap) {
    const std::int64_t line = tap / window.width, column = tap % window.width;
    const Var copy = narrow(narrow(picture, 1, line, line + n / columns), 2, column,
                            column + columns);  // [B, lines, columns, E]
    const Var term = copy * narrow(weight, 0, tap, tap + 1);
    sum = tap == 0 ? term : sum + term;
  }
  return reshape(sum, x.shape());
}

}  // namespace

TEST_CASE("a depthwise convolution mixes each channel with its neighbours of the same sequence") {
  for (const std::int64_t taps : {1, 3, 9}) {  // 9: wider than the sequence
    CAPTURE(taps);
    constexpr std::int64_t kB = 2, kN = 4, kE = 3;
    const Tensor x = numbers({kB, kN, kE}, 1), w = numbers({taps, kE}, 2);
    const std::vector<double> xs = x.to_vector(), ws = w.to_vector();
    const std::vector<double> y = convolved(x, w, {taps}).to_vector();
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

TEST_CASE("in a picture the window is as high as wide, and does not reach across its edges") {
  constexpr std::int64_t kB = 2, kLines = 3, kColumns = 4, kE = 2, kTaps = 3, kHeight = 5;
  const Tensor x = numbers({kB, kLines * kColumns, kE}, 3);
  const Tensor w = numbers({kHeight * kTaps, kE}, 4);
  const std::vector<double> xs = x.to_vector(), ws = w.to_vector();
  const std::vector<double> y = convolved(x, w, {kTaps, kHeight, kColumns}).to_vector();
  const auto at = [](std::int64_t b, std::int64_t line, std::int64_t column, std::int64_t e) {
    return static_cast<std::size_t>(((b * kLines + line) * kColumns + column) * kE + e);
  };
  for (std::size_t i = 0; i < y.size(); ++i) {
    const auto flat = static_cast<std::int64_t>(i);
    const std::int64_t e = flat % kE, column = flat / kE % kColumns;
    const std::int64_t line = flat / kE / kColumns % kLines, b = flat / kE / kColumns / kLines;
    double expected = 0;
    for (std::int64_t r = 0; r < kHeight; ++r) {
      for (std::int64_t t = 0; t < kTaps; ++t) {
        const std::int64_t from_line = line + r - kHeight / 2, from_column = column + t - kTaps / 2;
        if (from_line < 0 || from_line >= kLines) continue;
        if (from_column < 0 || from_column >= kColumns) continue;
        expected += ws[static_cast<std::size_t>((r * kTaps + t) * kE + e)] *
                    xs[at(b, from_line, from_column, e)];
      }
    }
    CHECK(y[i] == doctest::Approx(expected));
  }
}

TEST_CASE("a fused convolution equals mask, taps, dropout and residual, at every precision") {
  struct Sizes {
    std::int64_t B, N, E;
    nn::Window window;
  };
  const Sizes sizes[] = {
      {2, 45, 64, {15}}, {3, 5, 7, {3}}, {1, 12, 16, {3, 3, 4}}, {2, 3, 5, {9}}, {1, 1, 1, {1}}};
  for (const Sizes& s : sizes) {
    for (const double rate : {0.0, 0.3}) {
      CAPTURE(s.N);
      CAPTURE(s.E);
      CAPTURE(rate);
      const std::vector<Tensor> inputs = {numbers({s.B, s.N, s.E}, 11),
                                          numbers({s.B, s.N, s.E}, 12),
                                          numbers({s.window.width * s.window.height, s.E}, 13)};
      const Dropout dropping{rate, {11, {}}, 5, s.N + 3};
      check_both_ways(inputs, 50, [&](const std::vector<Var>& v, Way way) {
        const Tensor& x = v[0].value();
        std::vector<double> real(static_cast<std::size_t>(s.B * s.N), 1);
        for (std::size_t i = 2; i < real.size(); i += 3) real[i] = 0;
        const Tensor mask = Tensor::from(real, {s.B, s.N}, x.dtype(), x.device());
        if (way == Way::fused) {
          return nn::add_convolution(v[0], v[1], v[2], mask, s.window, dropping);
        }
        const Var near = of_shifted_copies(mask_rows(v[1], mask), v[2], s.window);
        return v[0] + dropout(near, dropping);
      });
    }
  }
}

TEST_CASE("a layer's convolution is one op") {
  nn::ModelConfig config;
  config.vocabulary = 5;
  config.classes = 3;
  config.nominal_length = 8;
  config.conv_width = 3;
  for_each_device([&](Device device) { CHECK(records("add_convolution", device, config)); });
}
