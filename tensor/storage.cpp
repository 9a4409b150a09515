#include "tensor/storage.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <tuple>
#include <vector>

#include "tensor/device.hpp"

namespace skytape {

// CUDA half, in storage.cu.
void* allocate_on(Cuda, std::size_t bytes);
void free_on(Cuda, void* data);
void trim_on(Cuda);
void copy_cuda_bytes(void* target, Device target_device, const void* source, Device source_device,
                     std::size_t bytes);

namespace {

constexpr std::size_t kAlignment = 64;

// Address sanitizer must see every allocation, so it gets no cache.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kCache = false;
#else
constexpr bool kCache = true;
#endif

/// Size classes 1/8 of a power of two apart: at most 12.5 % is lost, and equal steps reuse blocks.
std::size_t size_class(std::size_t bytes) {
  std::size_t step = kAlignment;
  while (step * 16 < bytes) step *= 2;
  return (bytes + step - 1) / step * step;
}

void* allocate_on(Cpu, std::size_t bytes) {
  void* data = std::aligned_alloc(kAlignment, bytes);
  ENSURE(data != nullptr, "out of memory: could not allocate ", bytes, " bytes on the cpu");
  return data;
}
void free_on(Cpu, void* data) { std::free(data); }

/// Free blocks by size, and counts. The CUDA side caches in its stream-ordered pool instead,
/// which also works while a graph is captured.
struct Allocator {
  std::mutex mutex;
  std::map<std::size_t, std::vector<void*>> free_blocks;
  MemoryStats stats;
};

Allocator& allocator(Device device) {
  static Allocator* const cpu = new Allocator;  // never destroyed: tensors may outlive main
  static Allocator* const cuda = new Allocator;
  return device == Device::cpu ? *cpu : *cuda;
}

/// Takes the smallest free block that holds `bytes`, if one of at most twice the size is there:
/// batches of changing width then share their blocks. {nullptr, bytes} if not.
std::pair<void*, std::size_t> take_free(Allocator& pool, std::size_t bytes) {
  const std::lock_guard lock(pool.mutex);
  for (auto at = pool.free_blocks.lower_bound(bytes);
       at != pool.free_blocks.end() && at->first <= 2 * bytes; ++at) {
    if (at->second.empty()) continue;
    void* const block = at->second.back();
    at->second.pop_back();
    return {block, at->first};
  }
  return {nullptr, bytes};
}

}  // namespace

Storage::Storage(std::size_t bytes, Device device) : bytes_(size_class(bytes)), device_(device) {
  Allocator& pool = allocator(device);
  std::tie(data_, block_bytes_) = take_free(pool, bytes_);
  if (data_ == nullptr) {
    data_ = on_device(device, [&](auto tag) { return allocate_on(tag, bytes_); });
    const std::lock_guard lock(pool.mutex);
    ++pool.stats.system_allocations;
  }
  const std::lock_guard lock(pool.mutex);
  pool.stats.live_bytes += static_cast<std::int64_t>(bytes_);
  pool.stats.peak_bytes = std::max(pool.stats.peak_bytes, pool.stats.live_bytes);
#ifndef NDEBUG
  if (device == Device::cpu) std::memset(data_, 0xff, bytes_);  // NaN: reads before writes show
#endif
}

Storage::~Storage() {
  Allocator& pool = allocator(device_);
  const std::lock_guard lock(pool.mutex);
  pool.stats.live_bytes -= static_cast<std::int64_t>(bytes_);
  if (device_ == Device::cpu && kCache) {
    pool.free_blocks[block_bytes_].push_back(data_);
  } else {
    on_device(device_, [&](auto tag) { free_on(tag, data_); });
  }
}

MemoryStats memory_stats(Device device) {
  Allocator& pool = allocator(device);
  const std::lock_guard lock(pool.mutex);
  return pool.stats;
}

void reset_peak_bytes(Device device) {
  Allocator& pool = allocator(device);
  const std::lock_guard lock(pool.mutex);
  pool.stats.peak_bytes = pool.stats.live_bytes;
}

void release_cached_memory(Device device) {
  Allocator& pool = allocator(device);
  const std::lock_guard lock(pool.mutex);
  for (auto& [bytes, blocks] : pool.free_blocks) {
    for (void* block : blocks) std::free(block);
  }
  pool.free_blocks.clear();
  if constexpr (kHaveCuda) {
    if (device == Device::cuda) trim_on(Cuda{});
  }
}

void copy_bytes(void* target, Device target_device, const void* source, Device source_device,
                std::size_t bytes) {
  if (bytes == 0) return;
  if (target_device == Device::cpu && source_device == Device::cpu) {
    std::memcpy(target, source, bytes);
    return;
  }
  if constexpr (kHaveCuda) {
    copy_cuda_bytes(target, target_device, source, source_device, bytes);
  } else {
    throw Error("copy: this program was built without CUDA (make CUDA=1)");
  }
}

}  // namespace skytape
