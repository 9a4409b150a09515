// How fast a GPU multiplies matrices in each precision: what is meant for tensor cores must show it.
// And how fast it inverts them, by one block of threads a matrix or by two.
#pragma once

#include <cstdint>
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

/// What is wrong with the rates if tf32 and bf16 products run on tensor cores, which multiply at
/// many times the rate of fp32; empty if nothing is.
[[nodiscard]] std::string why_no_tensor_cores(const ProductRates& rates);

/// Milliseconds that all steps of the iterative inverse of `count` matrices [size, size] take on CUDA,
/// forward and backward: the shortest of some runs, with at most so many blocks a matrix.
[[nodiscard]] double measure_inverse_ms(Precision precision, std::int64_t count, std::int64_t size,
                                        int most_blocks);

}  // namespace skytape::train
