// Rates of the machine: products and copies.
#pragma once

#include "tensor/core/device.hpp"

namespace skytape::tensor {

/// Returns the rate of an f32 product of square matrices (1024 on the CPU, 4096 on a GPU) at the
/// device's precision, in 10^9 floating-point operations a second. The best of several runs with
/// all OpenMP threads.
[[nodiscard]] double measure_gemm_gflops(Device device);
/// Returns the rate of a copy larger than the caches, in 10^9 bytes a second, read plus written.
/// The best of several runs, as above.
[[nodiscard]] double measure_copy_gbs(Device device);

}  // namespace skytape::tensor
