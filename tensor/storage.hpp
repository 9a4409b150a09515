// Memory: one caching allocator per device, with byte counts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "tensor/device.hpp"

namespace skytape {

/// A block of device memory, returned to its allocator when the last tensor lets go of it.
class Storage {
 public:
  Storage(std::size_t bytes, Device device);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  [[nodiscard]] void* data() const { return data_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] Device device() const { return device_; }

 private:
  void* data_;
  std::size_t bytes_;        // asked for, rounded up: what the counts are of
  std::size_t block_bytes_;  // of the block, which may have served a larger request before
  Device device_;
};

/// Bytes held by live tensors, their maximum since the last reset, and requests that the cache
/// could not serve (in a steady state this stops growing).
struct MemoryStats {
  std::int64_t live_bytes = 0;
  std::int64_t peak_bytes = 0;
  std::int64_t system_allocations = 0;
};
[[nodiscard]] MemoryStats memory_stats(Device device);
void reset_peak_bytes(Device device);

/// Gives cached, unused blocks back to the system.
void release_cached_memory(Device device);

/// Copies bytes between any two places; returns when the source may be reused.
void copy_bytes(void* target, Device target_device, const void* source, Device source_device,
                std::size_t bytes);

}  // namespace skytape
