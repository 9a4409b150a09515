#include "tensor/launch/math.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "tests/support/doctest.hpp"

using namespace skytape;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

/// The distance of y from e^x in units of y's last place.
double error_of(float x, float y) {
  const double unit = std::ldexp(1.0, std::ilogb(y) - 23);
  return std::abs(static_cast<double>(y) - std::exp(static_cast<double>(x))) / unit;
}

}  // namespace

TEST_CASE("exp of f32 is within 1.4 units of the last place") {
  double worst = 0;
  for (std::int64_t bits = 0; bits <= 0xffffffff; bits += 4099) {
    const auto x = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    if (!(x >= -86.9f && x <= 88.7f)) continue;
    worst = std::max(worst, error_of(x, math::exp(x)));
  }
  CHECK(worst > 0);
  CHECK(worst <= 1.4);
}

TEST_CASE("exp of f32 at the ends of its range, of zeros and of NaN") {
  CHECK(math::exp(0.0f) == 1);
  CHECK(math::exp(-0.0f) == 1);
  CHECK(math::exp(-kInf) == 0);
  CHECK(math::exp(-1e30f) == 0);
  CHECK(math::exp(-87.0f) == 0);
  CHECK(math::exp(-86.9f) > 0);
  CHECK(error_of(88.7228f, math::exp(88.7228f)) <= 1.4);
  CHECK(math::exp(88.7229f) == kInf);
  CHECK(math::exp(1e30f) == kInf);
  CHECK(math::exp(kInf) == kInf);
  CHECK(std::isnan(math::exp(std::numeric_limits<float>::quiet_NaN())));
  CHECK(std::isnan(math::exp(-std::numeric_limits<float>::quiet_NaN())));
}
