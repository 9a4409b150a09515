#include "tensor/core/storage.hpp"

#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <tuple>
#include <vector>

#include "tensor/core/on_device.hpp"
#include "tensor/core/storage_plan.hpp"

namespace skytape {
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

/// Large blocks ask for huge pages, where the kernel gives them on request: a step walks through
/// many arrays, and with pages of 4 KiB it waits for their translation. Where the system has no
/// memory left, it gets the cached blocks back and is asked again.
void* allocate_on(Cpu, std::size_t bytes) {
  constexpr std::size_t kHugePage = std::size_t{2} << 20;
  const std::size_t alignment = bytes < kHugePage ? kAlignment : kHugePage;
  void* data = nullptr;
  int failed = posix_memalign(&data, alignment, bytes);
  if (failed != 0) {
    release_cached_memory(Device::cpu);
    failed = posix_memalign(&data, alignment, bytes);
  }
  ENSURE(failed == 0, "out of memory: could not allocate ", bytes, " bytes on the cpu");
#ifdef MADV_HUGEPAGE
  if (bytes >= kHugePage) (void)madvise(data, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
#endif
  return data;
}
void free_on(Cpu, void* data) { std::free(data); }

using FreeBlocks = std::map<std::size_t, std::vector<void*>>;  // by size

/// A block whose last tensor is gone.
struct Block {
  void* data;
  std::size_t bytes, block_bytes;
  Device device;
  std::shared_ptr<GraphMemory> graphs;
};

/// Free blocks and counts. The CUDA side caches in its stream-ordered pool instead,
/// which also works while a graph is captured.
struct Allocator {
  std::mutex mutex;
  FreeBlocks free_blocks;
  MemoryStats stats;
  bool keeps = false;       // a KeptBlocks lives
  std::vector<Block> kept;  // for it
};

Allocator& allocator(Device device) {
  static Allocator* const cpu = new Allocator;  // never destroyed: tensors may outlive main
  static Allocator* const cuda = new Allocator;
  // A fork while another thread allocates would leave the child a mutex that nobody unlocks.
  [[maybe_unused]] static const int forks = pthread_atfork(
      [] { cpu->mutex.lock(); }, [] { cpu->mutex.unlock(); }, [] { cpu->mutex.unlock(); });
  return device == Device::cpu ? *cpu : *cuda;
}

/// Takes the smallest free block that holds `bytes`, if one of at most twice the size is there:
/// batches of changing width then share their blocks. {nullptr, bytes} if not.
std::pair<void*, std::size_t> take_free(FreeBlocks& free_blocks, std::size_t bytes) {
  for (auto at = free_blocks.lower_bound(bytes); at != free_blocks.end() && at->first <= 2 * bytes;
       ++at) {
    if (at->second.empty()) continue;
    void* const block = at->second.back();
    at->second.pop_back();
    return {block, at->first};
  }
  return {nullptr, bytes};
}

}  // namespace

class GraphMemory {
 public:
  ~GraphMemory() {
    for (const auto& [bytes, blocks] : free_blocks) {
      for (void* block : blocks) {
        if constexpr (kHaveCuda) free_for_graphs_on(Cuda{}, block);
      }
    }
  }

  FreeBlocks free_blocks;
  std::int64_t tensors = 0;  // that hold a block
};

namespace {

std::mutex graph_mutex;                                 // of all GraphMemory
thread_local std::shared_ptr<GraphMemory> graph_scope;  // null: none is open on this thread

std::shared_ptr<GraphMemory> shared_graph_memory() {
  static std::weak_ptr<GraphMemory> shared;
  const std::lock_guard lock(graph_mutex);
  std::shared_ptr<GraphMemory> memory = shared.lock();
  if (memory == nullptr) shared = memory = std::make_shared<GraphMemory>();
  return memory;
}

}  // namespace

GraphMemoryScope::GraphMemoryScope() {
  ENSURE(graph_scope == nullptr, "GraphMemoryScope: one is open already");
  graph_scope = shared_graph_memory();
}
GraphMemoryScope::~GraphMemoryScope() { graph_scope = nullptr; }
std::shared_ptr<GraphMemory> GraphMemoryScope::memory() const { return graph_scope; }
std::int64_t GraphMemoryScope::tensors() const {
  const std::lock_guard lock(graph_mutex);
  return graph_scope->tensors;
}

Storage::Storage(std::size_t bytes, Device device) : bytes_(size_class(bytes)), device_(device) {
  Allocator& pool = allocator(device);
  if (device == Device::cuda) graphs_ = graph_scope;
  {
    const std::lock_guard lock(graphs_ ? graph_mutex : pool.mutex);
    std::tie(data_, block_bytes_) =
        take_free(graphs_ ? graphs_->free_blocks : pool.free_blocks, bytes_);
  }
  const bool from_system = data_ == nullptr;
  if (from_system) {
    data_ = on_device(device, [&](auto tag) {
      if constexpr (std::is_same_v<decltype(tag), Cuda>) {
        if (graphs_) return allocate_for_graphs_on(tag, bytes_);
      }
      return allocate_on(tag, bytes_);
    });
  }
  if (graphs_) {
    const std::lock_guard lock(graph_mutex);
    ++graphs_->tensors;
  }
  const std::lock_guard lock(pool.mutex);
  pool.stats.system_allocations += from_system;
  pool.stats.live_bytes += static_cast<std::int64_t>(bytes_);
  pool.stats.peak_bytes = std::max(pool.stats.peak_bytes, pool.stats.live_bytes);
#ifndef NDEBUG
  if (device == Device::cpu) std::memset(data_, 0xff, bytes_);  // NaN: reads before writes show
#endif
}

Storage::Storage(void* data, std::size_t bytes, Device device, std::shared_ptr<void> owner)
    : data_(data), bytes_(bytes), block_bytes_(bytes), device_(device), owner_(std::move(owner)) {}

namespace {

/// To its allocator or its graphs.
void give_back(const Block& block) {
  if (block.graphs) {
    const std::lock_guard lock(graph_mutex);
    block.graphs->free_blocks[block.block_bytes].push_back(block.data);
    --block.graphs->tensors;
  }
  Allocator& pool = allocator(block.device);
  const std::lock_guard lock(pool.mutex);
  pool.stats.live_bytes -= static_cast<std::int64_t>(block.bytes);
  if (block.graphs) return;
  if (block.device == Device::cpu && kCache) {
    pool.free_blocks[block.block_bytes].push_back(block.data);
  } else {
    on_device(block.device, [&](auto tag) { free_on(tag, block.data); });
  }
}

}  // namespace

Storage::~Storage() {
  if (owner_) return;
  Block block{data_, bytes_, block_bytes_, device_, std::move(graphs_)};
  if (device_ == Device::cuda) {
    Allocator& pool = allocator(device_);
    const std::lock_guard lock(pool.mutex);
    if (pool.keeps) {
      pool.kept.push_back(std::move(block));
      return;
    }
  }
  give_back(block);
}

KeptBlocks::KeptBlocks() {
  Allocator& pool = allocator(Device::cuda);
  const std::lock_guard lock(pool.mutex);
  ENSURE(!pool.keeps, "side_by_side: within another one");
  pool.keeps = true;
}
KeptBlocks::~KeptBlocks() {
  Allocator& pool = allocator(Device::cuda);
  std::vector<Block> kept;
  {
    const std::lock_guard lock(pool.mutex);
    pool.keeps = false;
    kept.swap(pool.kept);
  }
  for (const Block& block : kept) give_back(block);
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
