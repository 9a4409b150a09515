// Counts a GPU's work without one: the host's half of the CUDA code runs as always, its kernels,
// products and copies do not. So the count is of the kernels that really run there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tensor/core/traffic.hpp"

namespace skytape {

/// A kernel, library product or copy that was to run on a GPU.
struct GpuKernel {
  std::string name;
  std::string part;                // of the work, see GpuCount::end_part
  Work work;                       // each array that the kernel takes passes through memory once
  std::int64_t blocks = 0;         // of a kernel's grid; 0: a library's
  const void* function = nullptr;  // the kernel on the host; a library's and copies have none
};

/// While it lives, CUDA tensors that this thread makes are addresses without memory, and what it
/// submits to the GPU is counted. What comes back to the host is zeros. One at a time.
class GpuCount {
 public:
  GpuCount();
  ~GpuCount();
  GpuCount(const GpuCount&) = delete;
  GpuCount& operator=(const GpuCount&) = delete;

  /// In order.
  [[nodiscard]] const std::vector<GpuKernel>& kernels() const { return kernels_; }

  // For the code that submits. Only active() and owns() may be called while nobody counts.

  [[nodiscard]] static bool active();
  /// An address that no memory has, and whether `data` is one; no kernel takes it any more.
  [[nodiscard]] static void* allocate(std::size_t bytes);
  [[nodiscard]] static bool owns(const void* data);
  static void free(const void* data);
  /// An argument of the next kernel, its padding zero; finds the arrays whose addresses are in it.
  static void argument(const void* value, std::size_t bytes);
  /// The kernel itself, after its arguments, and the blocks of its grid. `work` has no bytes of
  /// arrays.
  static void kernel(const char* name, const void* function, std::int64_t blocks, Work work);
  /// A library's product, or a copy.
  static void call(const char* name, const Work& work);

  // For anybody; nothing happens while nobody counts.

  /// The kernels since the last part's end make up this one.
  static void end_part(const char* name);
  /// The array, or part of one, that a kernel takes whose arguments hold this address.
  static void array(const void* begin, std::size_t bytes);
  /// The last kernel passes so many bytes through memory once more.
  static void again(std::int64_t bytes);

 private:
  std::vector<GpuKernel> kernels_;
  std::size_t parted_ = 0;                        // kernels that belong to a part
  std::map<const void*, std::size_t> memory_;     // begin and bytes, until it is freed
  std::map<const void*, std::size_t> arrays_;     // begin and bytes, as the host saw them last
  std::map<const void*, std::size_t> arguments_;  // of the next kernel
};

}  // namespace skytape
