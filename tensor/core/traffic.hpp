// Counts what kernels read and write. It holds on every device, as it counts arguments and not
// instructions: each array that a kernel takes passes through memory once, however often caches
// serve it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace skytape {

class Storage;

/// The cost of one call of a kernel. A caller who launches it states what its arguments do not
/// show: the bytes that pass once more where an array is both read and written, the products.
struct Work {
  std::int64_t bytes = 0;          // read plus written, its own scratch not counted
  std::int64_t multiply_adds = 0;  // of scalar products, as tensor::cpu_multiply_adds counts them
  bool product = false;            // at the precision of products: theirs, and tiled attention's
};

/// While it lives, counts the kernels that this thread calls. One at a time.
class TrafficCount {
 public:
  TrafficCount();
  ~TrafficCount();
  TrafficCount(const TrafficCount&) = delete;
  TrafficCount& operator=(const TrafficCount&) = delete;

  /// The calls so far, in order; those that touched no array are left out.
  [[nodiscard]] const std::vector<Work>& launches() const { return launches_; }

 private:
  friend class LaunchScope;
  friend struct TrafficHooks;
  struct Touched {
    std::size_t capacity = 0;                              // bytes of the storage
    std::set<std::pair<const void*, std::size_t>> pieces;  // begin and bytes
  };

  std::vector<Work> launches_;
  int depth_ = 0;                              // kernels may call others
  std::int64_t start_ = 0;                     // multiply-adds before the call
  std::map<const Storage*, Touched> touched_;  // by the call that runs
  std::set<const Storage*> scratch_;           // made during the call
  Work stated_;                                // by those who launched
};

/// Wraps the call of one kernel (on_device does).
class LaunchScope {
 public:
  explicit LaunchScope(const Work& stated);
  ~LaunchScope();
  LaunchScope(const LaunchScope&) = delete;
  LaunchScope& operator=(const LaunchScope&) = delete;

 private:
  std::int64_t bytes_;  // stated
};

/// Called by tensors and storage; nothing happens while nobody counts.
struct TrafficHooks {
  static void touched(const Storage& storage, const void* begin, std::size_t bytes);
  static void made(const Storage& storage);
};

namespace tensor {

/// Multiply-adds of all products on the CPU since the program started: the work that formulas are
/// compared with. count_multiply_adds is for kernels that form scalar products without a gemm.
[[nodiscard]] std::int64_t cpu_multiply_adds();
void count_multiply_adds(std::int64_t count);

}  // namespace tensor
}  // namespace skytape
