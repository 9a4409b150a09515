// Rounds the operands of a product as tensor cores do, in doubles.
#pragma once

#include <cmath>
#include <functional>

namespace skytape::test {

using Rounding = std::function<double(double)>;

/// To a number with so many bits of significand.
inline Rounding to_bits(int bits) {
  return [bits](double x) {
    int exponent = 0;
    const double mantissa = std::frexp(x, &exponent);
    return std::ldexp(std::nearbyint(std::ldexp(mantissa, bits)), exponent - bits);
  };
}

}  // namespace skytape::test
