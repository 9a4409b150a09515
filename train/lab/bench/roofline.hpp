// The least time of a training step on a GPU: every kernel waits for its arithmetic or for memory,
// whichever is longer. A program with CUDA counts the kernels that it would submit, without
// a GPU (gpu_count.hpp); one without counts those of the CPU, which are other ones. Nothing here
// depends on a clock.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tensor/core/gpu_count.hpp"
#include "tensor/core/traffic.hpp"
#include "train/formats/table.hpp"
#include "train/lab/bench/bench.hpp"
#include "train/lab/bench/bench_parts.hpp"

namespace skytape::train {

/// A GPU's rates. The defaults are an H200's: copy and bf16 product as measured, tf32 half of bf16
/// (so in NVIDIA's data sheet: 495 and 989 TFLOP/s), fp32 as in the data sheet.
struct Rates {
  double copy_gbs = 4300;    // 10^9 bytes a second, read plus written
  double bf16_tflops = 790;  // 10^12 floating-point operations a second, library products
  double fp32_tflops = 67;   // without tensor cores: fp32 products and most of our own kernels
  /// Returns the throughput of GEMM, tiled and block attention in "fp32", "tf32" or "bf16".
  [[nodiscard]] double product_tflops(const std::string& precision) const;
};

/// The kernels of one training step of a case on the CPU, in order, with the work of each.
[[nodiscard]] std::vector<Work> cpu_step_launches(const BenchCase& c);

/// Whose kernels step_kernels counts: "cuda" or, in a program without CUDA, "cpu".
[[nodiscard]] const char* counted_kernels();
/// The kernels of one training step of a case in its precision, in order, with the part of the step
/// that each belongs to; those of the CPU have none.
[[nodiscard]] std::vector<GpuKernel> step_kernels(const BenchCase& c);

struct StepWork {
  double flops = 0, bytes = 0;  // of all kernels; two operations a multiply-add
  double seconds = 0;           // sum of each kernel's longer time
  std::int64_t launches = 0;
  double own_flops = 0;            // of kernels that never round operands to the precision alone
  std::optional<StepParts> parts;  // of the time; nothing where kernels belong to none
};
/// Returns the work and the least time of kernels that were counted in this precision.
[[nodiscard]] StepWork predict(const std::vector<GpuKernel>& kernels, const Rates& rates,
                               const std::string& precision);

/// The same of a step in "fp32", "tf32" and "bf16".
[[nodiscard]] std::map<std::string, StepWork> step_work(const BenchCase& c, const Rates& rates);

struct RooflineOptions {
  std::vector<std::string> methods;
  std::int64_t n = 2048, batch = 32, features = 128, steps = 50000;
  Rates rates;
};
/// Work, intensity and predicted times of each method's step.
[[nodiscard]] Table roofline_table(const RooflineOptions& options);

}  // namespace skytape::train
