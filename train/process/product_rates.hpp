// Measures how fast a GPU multiplies matrices in each precision: tensor cores must show in the
// rates. Also measures how fast it inverts them, by one block of threads a matrix or by two, and
// the costs of kernels on it.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "tensor/core/device.hpp"
#include "tensor/gemm/precision.hpp"

namespace skytape::train {

/// 10^9 operations a second.
struct ProductRates {
  double fp32 = 0, tf32 = 0, bf16 = 0;
};

/// Times large products in the three precisions. The device's precision is fp32 afterwards.
[[nodiscard]] ProductRates measure_products(Device device);

/// Returns why the rates contradict tf32 and bf16 products on tensor cores, which multiply at many
/// times the rate of fp32; empty if they do not.
[[nodiscard]] std::string why_no_tensor_cores(const ProductRates& rates);

/// Returns a warning about times that were taken while the machine's products ran at these rates,
/// if the fastest and the slowest are more than a fifth apart; empty if they are not.
[[nodiscard]] std::string why_not_comparable(std::span<const double> gflops);

/// Milliseconds that all steps of the iterative inverse of `count` matrices [size, size] take on
/// CUDA, forward and backward: the shortest of some runs, with at most so many blocks a matrix.
[[nodiscard]] double measure_inverse_ms(Precision precision, std::int64_t count, std::int64_t size,
                                        int most_blocks);

struct GpuFacts {
  /// The multiprocessors' clock, right behind products that keep them busy.
  double clock_mhz = 0;
  /// Nanoseconds of a kernel that does nothing, in a graph of such, one behind the other; then
  /// where each is launched before the one ahead is done (programmatic dependent launch), or why
  /// none was.
  double node_ns = 0, dependent_node_ns = 0;
  std::string why_no_dependent;
  /// 10^12 operations a second by mma.sync, bf16, operands in registers.
  double mma_tflops = 0;
};
/// Measures them; Error without CUDA.
[[nodiscard]] GpuFacts measure_gpu_facts();

// CUDA half, in gpu_facts.cu.
GpuFacts gpu_facts_on(Cuda);

}  // namespace skytape::train
