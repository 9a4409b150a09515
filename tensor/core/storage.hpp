// Memory: one allocator per device, with byte counts. On the CPU it is a cache of ours, on a GPU
// CUDA's stream-ordered pool, and blocks that captured graphs share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "tensor/core/device.hpp"

namespace skytape {

/// Blocks of GPU memory that only the work of CUDA graphs uses, as a captured graph goes on reading
/// and writing their addresses. All graphs share them, since they run one after another; freed with
/// the last graph or tensor that holds on to it.
class GraphMemory;

/// A block of device memory, returned to its allocator or lender when the last tensor lets go of
/// it.
class Storage {
 public:
  Storage(std::size_t bytes, Device device);
  /// Memory of somebody else, `owner`, who gets it back. It is not counted as ours.
  Storage(void* data, std::size_t bytes, Device device, std::shared_ptr<void> owner);
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
  std::shared_ptr<GraphMemory> graphs_;  // whose block it is; null: an ordinary one
  std::shared_ptr<void> owner_;          // of lent memory; null: it is our own
};

/// Bytes held by live tensors, their maximum since the last reset, and requests that our caches
/// could not serve: on the CPU and for graphs this stops growing in a steady state, elsewhere on a
/// GPU every request counts. Tests alone read that number: it shows where a cache is missed.
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

/// While it lives, CUDA tensors that this thread makes take their blocks from the graphs' memory.
/// Every run of work that is to be captured belongs in one, so that its capture finds the blocks of
/// its first run.
class GraphMemoryScope {
 public:
  GraphMemoryScope();
  ~GraphMemoryScope();
  GraphMemoryScope(const GraphMemoryScope&) = delete;
  GraphMemoryScope& operator=(const GraphMemoryScope&) = delete;

  /// For who outlives the scope and needs the blocks to stay.
  [[nodiscard]] std::shared_ptr<GraphMemory> memory() const;
  /// Tensors that hold such a block.
  [[nodiscard]] std::int64_t tensors() const;
};

}  // namespace skytape
