// What a training step must at least take on a GPU: every kernel waits for its arithmetic or for
// memory, whichever is longer. Work is counted from the kernels' arguments, on the CPU; nothing
// here depends on a clock.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tensor/core/traffic.hpp"
#include "train/bench/bench.hpp"
#include "train/formats/table.hpp"

namespace skytape::train {

/// A GPU's rates. The defaults are an H200's: copy and bf16 product as measured, tf32 half of bf16
/// (so in NVIDIA's data sheet: 495 and 989 TFLOP/s), fp32 as in the data sheet.
struct Rates {
  double copy_gbs = 4300;    // 10^9 bytes a second, read plus written
  double bf16_tflops = 790;  // 10^12 floating-point operations a second, library products
  double fp32_tflops = 67;   // without tensor cores: fp32 products and most of our own kernels
  /// Of products and tiled attention in "fp32", "tf32" or "bf16".
  [[nodiscard]] double product_tflops(const std::string& precision) const;
};

/// The kernels of one training step of a case, in order: bytes and multiply-adds of each.
[[nodiscard]] std::vector<Launch> step_launches(const BenchCase& c);

struct StepWork {
  double flops = 0, bytes = 0;  // of all kernels; two operations a multiply-add
  double seconds = 0;           // sum of each kernel's longer time
  std::int64_t launches = 0;
};
[[nodiscard]] StepWork predict(const std::vector<Launch>& launches, const Rates& rates,
                               const std::string& precision);

struct RooflineOptions {
  std::vector<std::string> methods;
  std::int64_t n = 2048, batch = 32, features = 128, steps = 50000;
  Rates rates;
};
/// Work, intensity and predicted times of each method's step.
[[nodiscard]] Table roofline_table(const RooflineOptions& options);

}  // namespace skytape::train
