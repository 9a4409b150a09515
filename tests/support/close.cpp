#include "tests/support/close.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "tensor/core/error.hpp"

namespace skytape::test {

double relative_error(const std::vector<double>& a, const std::vector<double>& b) {
  constexpr double kApart = std::numeric_limits<double>::infinity();
  if (a.size() != b.size()) return kApart;
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) continue;
    if (!std::isfinite(a[i]) || !std::isfinite(b[i])) return kApart;
    worst = std::max(worst, std::abs(a[i] - b[i]) / (1 + std::abs(b[i])));
  }
  return worst;
}

double relative_error(const Tensor& a, const std::vector<double>& b) {
  return relative_error(a.to_vector(), b);
}

double relative_error(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape()) return std::numeric_limits<double>::infinity();
  return relative_error(a.to_vector(), b.to_vector());
}

double rounding(DType dtype) { return dtype == DType::f64 ? 1e-14 : 2e-6; }

double error_when_rounded(const Tensor& plain, const Tensor& of_rounded, const Tensor& exact) {
  for (const Tensor& x : {plain, of_rounded}) {  // else any error would be allowed
    ENSURE(x.shape() == exact.shape(), "error_when_rounded: shapes differ: ", x, ", exact ", exact);
  }
  const double error = relative_error(plain, exact), rounded = relative_error(of_rounded, exact);
  return 4 * error < rounded ? rounded : error;  // bf16 and tf32 are eight times apart
}

Tensor rounded_as_operand(const Tensor& x, Precision precision) {
  if (precision == Precision::fp32) return x;
  const int bits = precision == Precision::tf32 ? 11 : 8;  // of the significand
  std::vector<double> values = x.to_vector();
  for (double& value : values) {
    int exponent = 0;
    value = std::ldexp(std::nearbyint(std::ldexp(std::frexp(value, &exponent), bits)), -bits);
    value = std::ldexp(value, exponent);
  }
  return Tensor::from(values, x.shape(), x.dtype(), Device::cpu);
}

Tensor random_tensor(const Shape& shape, DType dtype, Device device, std::uint64_t seed, double low,
                     double high) {
  std::mt19937_64 words(seed);
  std::vector<double> values(static_cast<std::size_t>(shape.numel()));
  // std::uniform_real_distribution differs between standard libraries; 53 bits of a word do not.
  for (double& value : values) {
    value = low + (high - low) * static_cast<double>(words() >> 11) * 0x1p-53;
  }
  return Tensor::from(values, shape, dtype, device);
}

}  // namespace skytape::test
