#include "train/bench/product_rates.hpp"

#include <fmt/format.h>

#include "tensor/gemm/gemm.hpp"
#include "tensor/gemm/precision.hpp"

namespace skytape::train {
namespace {

// Tensor cores have 7 (tf32) and 15 (bf16) times the fp32 rate in an H100's data sheet; operands
// that are rounded inside the product cost some of it. Without them nothing is gained.
constexpr double kLeastGain = 2;

}  // namespace

ProductRates measure_products(Device device) {
  const auto rate = [&](Precision precision) {
    const PrecisionScope scope(device, precision);
    return tensor::measure_gemm_gflops(device);
  };
  set_precision(device, Precision::fp32);
  return {rate(Precision::fp32), rate(Precision::tf32), rate(Precision::bf16)};
}

std::string why_no_tensor_cores(const ProductRates& rates) {
  std::string text;
  for (const auto& [name, rate] : {std::pair("tf32", rates.tf32), std::pair("bf16", rates.bf16)}) {
    if (rate >= kLeastGain * rates.fp32) continue;
    text += fmt::format("{}{} products run at {:.2f} times the rate of fp32, expected at least {}",
                        text.empty() ? "" : "; ", name, rate / rates.fp32, kLeastGain);
  }
  return text;
}

}  // namespace skytape::train
