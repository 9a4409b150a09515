// When a GPU ran what: each kernel, copy and fill, also inside a replayed graph, as CUPTI records
// them, the tracing library of NVIDIA's toolkit.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tensor/core/device.hpp"

namespace skytape {

/// One kernel, copy from device to device, or fill.
struct KernelTime {
  enum class Kind { kernel, copy, fill } kind = Kind::kernel;
  std::string name;                       // of a kernel, mangled
  std::string part;                       // see end_traced_part
  std::int64_t start_ns = 0, end_ns = 0;  // since some moment
  std::int64_t blocks = 0, threads = 0;   // of a kernel: the grid's blocks, threads of a block
  std::int64_t registers = 0;             // of a thread
  std::int64_t shared_bytes = 0;          // of a block
};

struct KernelTrace {
  std::vector<KernelTime> kernels;  // in the order of their starts
  std::string fault;                // why there are none; empty: nothing is missing
};
/// Calls f and traces all that it submits to the GPU, until that is done.
[[nodiscard]] KernelTrace trace_kernels(const std::function<void()>& f);

/// Within trace_kernels, waits for the GPU: what was submitted since the last call belongs to this
/// part of the work. Does nothing elsewhere.
void end_traced_part(const char* part);

/// Returns the GPU's number of multiprocessors.
[[nodiscard]] int multiprocessors();

// The CUDA half (kernel_times.cu).

KernelTrace trace_kernels_on(Cuda, const std::function<void()>& f);
void end_traced_part_on(Cuda, const char* part);
int multiprocessors_on(Cuda);

}  // namespace skytape
