// When a GPU ran what: each kernel, copy and fill, also inside a replayed graph, as CUPTI records
// them, the tracing library of NVIDIA's toolkit. Without it, each launch is timed by events.
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
  std::string name;                       // of a kernel, as kernel_name() gives it
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

/// Returns a kernel's name in traces, mangled, from its function (GpuKernel::function). Empty: not
/// known.
[[nodiscard]] std::string kernel_name(const void* function);

/// A submission to the stream, and the time from the end of the one before it to its own end.
struct LaunchTime {
  std::string name;         // of our kernels as their launches say, else "product" or "copy"
  std::int64_t blocks = 0;  // of a kernel's grid
  double us = 0;            // less what an event behind a kernel that does nothing costs
};
/// Calls f, which submits op by op and waits for nothing, while the GPU is kept busy for so many
/// milliseconds: no kernel waits for the host then. Resolves about half a microsecond.
[[nodiscard]] std::vector<LaunchTime> time_launches(double busy_ms, const std::function<void()>& f);

/// Returns the GPU's number of multiprocessors.
[[nodiscard]] int multiprocessors();

// The CUDA half (kernel_times.cu).

KernelTrace trace_kernels_on(Cuda, const std::function<void()>& f);
std::string kernel_name_on(Cuda, const void* function);
std::vector<LaunchTime> time_launches_on(Cuda, double busy_ms, const std::function<void()>& f);
int multiprocessors_on(Cuda);

}  // namespace skytape
