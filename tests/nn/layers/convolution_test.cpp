#include "nn/layers/convolution.hpp"

#include <cmath>
#include <vector>

#include "autograd/ops.hpp"
#include "tensor/random/dropout.hpp"
#include "tensor/random/random.hpp"
#include "tests/support/both_ways.hpp"

using namespace skytape;
using namespace skytape::test;

namespace {

Tensor numbers(const Shape& shape, std::uint64_t seed) {
  return tensor::normal(shape, Random{seed, {}}, DType::f32, Device::cpu);
}

struct Case {
  Tensor residual, x;  // [B, N, E]
  Tensor weight;       // [taps, E]
  Tensor real;         // [B, N], the mask
  nn::Window window;
  Dropout dropping;

  Case(const Shape& shape, const nn::Window& of, double rate)
      : residual(numbers(shape, 11)),
        x(numbers(shape, 12)),
        weight(numbers({of.width * of.height, shape[2]}, 13)),
        real(Tensor::full(shape.first(2), 1, DType::f32, Device::cpu)),
        window(of),
        dropping{rate, {11, {}}, 5, shape[1] + 3} {
    for (std::int64_t i = 2; i < real.numel(); i += 3) real.data<float>()[i] = 0;
  }
};

/// A sum's value, and the root of the sum of its terms' squares, to which rounding errors add up as
/// random steps do.
struct Sum {
  double value = 0, size = 0;
  void add(double term) {
    value += term;
    size = std::hypot(size, term);
  }
};

/// y[n] = residual[n] + keep[n] sum_taps w[tap] mask[m] x[m], with m where the tap reads, and the
/// gradients of residual, x and w. A sequence is a picture of one line.
std::vector<std::vector<Sum>> by_loops(const Case& c, const Tensor& dy_of_y) {
  const std::int64_t n = c.x.size(1), e_count = c.x.size(2);
  const std::int64_t columns = c.window.columns > 0 ? c.window.columns : n;
  const auto keep = tensor::dropout_factors(c.x.shape(), c.dropping, DType::f64, Device::cpu);
  const std::vector<double> r = c.residual.to_vector(), x = c.x.to_vector(),
                            w = c.weight.to_vector(), mask = c.real.to_vector(),
                            factor = keep.to_vector(), dy = dy_of_y.to_vector();
  std::vector<Sum> y(r.size()), dr(r.size()), dx(r.size()), dw(w.size());
  for (std::size_t i = 0; i < r.size(); ++i) {
    y[i].add(r[i]);
    dr[i].add(dy[i]);
  }
  for (std::int64_t row = 0; row < c.real.numel(); ++row) {
    for (std::int64_t tap = 0; tap < c.weight.size(0); ++tap) {
      const std::int64_t width = c.window.width, at = row % n;
      const std::int64_t line = at / columns + tap / width - c.window.height / 2;
      const std::int64_t column = at % columns + tap % width - width / 2;
      const std::int64_t from = line * columns + column;
      if (line < 0 || column < 0 || column >= columns || from >= n) continue;
      for (std::int64_t e = 0; e < e_count; ++e) {
        const auto i = static_cast<std::size_t>(row * e_count + e);
        const auto t = static_cast<std::size_t>(tap * e_count + e);
        const auto m = static_cast<std::size_t>((row - at + from) * e_count + e);
        const double both = factor[i] * mask[m / static_cast<std::size_t>(e_count)];
        y[i].add(both * w[t] * x[m]);
        dx[m].add(both * w[t] * dy[i]);
        dw[t].add(both * x[m] * dy[i]);
      }
    }
  }
  return {y, dr, dx, dw};
}

void check_by_loops(const Case& c, DType dtype, Device device) {
  const auto found = value_and_gradients(
      {c.residual, c.x, c.weight}, Way::fused, dtype, device, [&](const std::vector<Var>& v, Way) {
        const Tensor mask = c.real.to(dtype).to(device);
        return nn::add_convolution(v[0], v[1], v[2], mask, c.window, c.dropping);
      });
  const auto sums = by_loops(c, random_tensor(c.x.shape(), DType::f32, Device::cpu, 8));
  const double allowed = dtype == DType::f32 ? 0x1p-20 : 0x1p-47;  // some roundings of a term
  for (std::size_t i = 0; i < sums.size(); ++i) {
    CAPTURE(i);
    const std::vector<double> numbers = found[i].to_vector();
    REQUIRE(numbers.size() == sums[i].size());
    for (std::size_t j = 0; j < numbers.size(); ++j) {
      CHECK(std::abs(numbers[j] - sums[i][j].value) <= allowed * sums[i][j].size);
    }
  }
}

}  // namespace

TEST_CASE("a convolution adds up taps of its picture or sequence, within its edges and mask") {
  for (const double rate : {0.0, 0.3}) {
    for (const Case& c : {
             Case({2, 45, 64}, {15}, rate), Case({3, 5, 7}, {3}, rate),
             Case({2, 4, 3}, {9}, rate),  // wider than the sequence
             Case({1, 1, 1}, {1}, rate),
             Case({2, 12, 2}, {3, 5, 4}, rate),  // higher than the picture
             Case({2, 11, 3}, {5, 3, 4}, rate),  // the last line is cut
             Case({1, 300, 5}, {3}, rate),       // several chunks of rows
         }) {
      CAPTURE(rate);
      CAPTURE(c.x);
      for_each_device([&](Device device) {
        for (const DType dtype : {DType::f32, DType::f64}) check_by_loops(c, dtype, device);
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
