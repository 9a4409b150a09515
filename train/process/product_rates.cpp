#include "train/process/product_rates.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>

#include "attention/inverse/iterative_inverse.hpp"
#include "attention/inverse/iterative_inverse_plan.hpp"
#include "tensor/core/on_device.hpp"
#include "tensor/gemm/gemm_rate.hpp"
#include "tensor/gemm/precision.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/norm/softmax.hpp"
#include "tensor/random/random.hpp"

namespace skytape::train {
namespace {

// Tensor cores have 7 (tf32) and 15 (bf16) times the fp32 rate in an H100's data sheet; operands
// that are rounded inside the product cost some of it. Without them nothing is gained.
constexpr double kLeastGain = 2;

constexpr double kMostMoved = 1.2;  // of rates, of the same machine

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

std::string why_not_comparable(std::span<const double> gflops) {
  if (gflops.empty()) return {};
  const auto [least, most] = std::minmax_element(gflops.begin(), gflops.end());
  if (*most <= kMostMoved * *least) return {};
  return fmt::format(
      "the GEMM throughput moved between {:.0f} and {:.0f} GFLOP/s meanwhile: others "
      "use the machine, and the times cannot be compared",
      *least, *most);
}

double measure_inverse_ms([[maybe_unused]] Precision precision, [[maybe_unused]] std::int64_t count,
                          [[maybe_unused]] std::int64_t size, [[maybe_unused]] int most_blocks) {
  double shortest = std::numeric_limits<double>::infinity();
  if constexpr (!kHaveCuda) {
    throw Error("measure_inverse_ms: " + cuda_fault());
  } else {
    constexpr int kRuns = 7, kRepeats = 10;
    const PrecisionScope scope(Device::cuda, precision);
    // Rows of softmax weights, like the matrices that Nystromformer inverts.
    const Tensor m = tensor::softmax(
        tensor::normal({count, size, size}, {1, {}}, DType::f32, Device::cuda));  // [G, L, L]
    attention::InverseTrace trace =
        attention::empty_trace(tensor::affine(m, 0.5), attention::InverseConfig().steps,
                               attention::inverse_kept_on(Cuda{}, m));
    Tensor dm = empty_like(m), dstart = empty_like(m);  // [G, L, L]
    for (int run = 0; run <= kRuns; ++run) {            // the first one warms up
      synchronize(Device::cuda);
      const auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < kRepeats; ++i) {
        attention::inverse_steps_on(Cuda{}, m, trace, most_blocks);
        attention::inverse_steps_backward_on(Cuda{}, m, trace, m, dm, dstart, most_blocks);
      }
      synchronize(Device::cuda);
      const std::chrono::duration<double, std::milli> ms = std::chrono::steady_clock::now() - start;
      if (run > 0) shortest = std::min(shortest, ms.count() / kRepeats);
    }
  }
  return shortest;
}

GpuFacts measure_gpu_facts() {
  if constexpr (kHaveCuda) {
    return gpu_facts_on(Cuda{});
  } else {
    throw Error("measure_gpu_facts: " + cuda_fault());
  }
}

}  // namespace skytape::train
