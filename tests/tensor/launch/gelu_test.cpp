#include "tensor/launch/gelu.hpp"

#include <algorithm>
#include <cmath>

#include "tests/support/doctest.hpp"

using namespace skytape;

TEST_CASE(
    "GELU by one exponential and its derivative are the exact ones to a few roundings of f32") {
  // A GPU's exp2 and reciprocal are off by two units in the last place at most.
  for (const float off : {0.0f, 0x1p-22f, -0x1p-22f}) {
    const auto exp2 = [off](float x) { return std::exp2(x) * (1 + off); };
    const auto reciprocal = [off](float x) { return (1 - off) / x; };
    double value = 0, derivative = 0;  // largest errors
    for (int i = -200000; i <= 200000; ++i) {
      const float z = static_cast<float>(i) * 0x1p-14f;  // to 12
      const double x = z, cdf = std::erfc(-x * std::sqrt(0.5)) / 2;
      const double density = std::exp(-x * x / 2) / std::sqrt(2 * std::acos(-1.0));
      const tensor::Gelu found = tensor::gelu(z, exp2, reciprocal);
      value = std::max(value, std::abs(found.value - x * cdf) / (1 + std::abs(x)));
      derivative = std::max(derivative, std::abs(found.derivative - (cdf + x * density)));
    }
    CHECK(value <= 2e-7);
    CHECK(derivative <= 6e-7);
    CHECK(tensor::gelu(1e30f, exp2, reciprocal).value == 1e30f);
    CHECK(tensor::gelu(-1e30f, exp2, reciprocal).derivative == 0);
    CHECK(std::isnan(tensor::gelu(std::nanf(""), exp2, reciprocal).derivative));
  }
}
