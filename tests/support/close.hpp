// Closeness of results, and random inputs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tensor/core/tensor.hpp"
#include "tensor/gemm/precision.hpp"

namespace skytape::test {

/// Largest |a - b| / (1 + |b|) over all entries; equal infinities and NaN in both count as 0, and
/// infinity comes back where one side alone is not finite or the numbers of entries differ.
[[nodiscard]] double relative_error(const std::vector<double>& a, const std::vector<double>& b);
[[nodiscard]] double relative_error(const Tensor& a, const std::vector<double>& b);
/// The same for tensors of any dtype and device; infinity when the shapes differ.
[[nodiscard]] double relative_error(const Tensor& a, const Tensor& b);

/// Returns the error that a single kernel may have: a few roundings of its dtype.
[[nodiscard]] double rounding(DType dtype);

/// x, f32 or f64 on the CPU, with entries rounded as a product's operands are at that precision.
[[nodiscard]] Tensor rounded_as_operand(const Tensor& x, Precision precision);

/// The error of `plain`, composed of library products, that a rounding kernel is measured by. At
/// tf32 and bf16 a GPU's library may round operands, but need not, for small or unaligned products
/// say; where it evidently did not, that of exact products of rounded inputs counts.
[[nodiscard]] double error_when_rounded(const Tensor& plain, const Tensor& of_rounded,
                                        const Tensor& exact);

/// Uniform entries in [low, high), the same on every platform, rounded to dtype.
[[nodiscard]] Tensor random_tensor(const Shape& shape, DType dtype = DType::f64,
                                   Device device = Device::cpu, std::uint64_t seed = 1,
                                   double low = -2, double high = 2);

/// Text of the Error that f throws; empty when it throws none.
template <class F> [[nodiscard]] std::string error_text(const F& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

}  // namespace skytape::test
