// The simulated device's memory, streams and graphs, as its launches, libraries and traces see
// them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "tensor/core/on_device.hpp"
#include "tests/cuda_simulator/cuda_runtime.h"

namespace skytape::cuda_simulator {

/// Makes device memory accessible for as long as it lives; beyond that address sanitizer reports
/// whoever touches it.
class OpenMemory {
 public:
  OpenMemory();
  ~OpenMemory();
  OpenMemory(const OpenMemory&) = delete;
  OpenMemory& operator=(const OpenMemory&) = delete;
};

/// Keeps the reason for cudaGetErrorString and returns the status.
cudaError_t failed(cudaError_t status, const std::string& reason);

/// Runs the work now, or adds it to the graph that the stream captures.
cudaError_t enqueue(cudaStream_t stream, std::function<cudaError_t()> work);

/// Returns whether threads run in the reverse order (SKYTAPE_SIMULATED_ORDER).
[[nodiscard]] bool order_is_reverse();

/// True while launches are only counted (LaunchesOnly); then counts a product.
[[nodiscard]] bool only_counts_product();

/// Records work that ran from start_ns until now, if CUPTI was asked for it: a kernel; a product,
/// `in_parts` where the library adds up several; a copy, its direction as cudaMemcpyKind has it.
struct Kernel;
void trace_kernel(const Kernel& kernel, std::int64_t start_ns);
void trace_product(bool in_parts, std::int64_t start_ns);
void trace_copy(int direction, std::int64_t start_ns);

/// Returns whether [data, data + bytes) is within one piece of device memory.
[[nodiscard]] bool on_device(const void* data, std::size_t bytes);

}  // namespace skytape::cuda_simulator
