// Runs the threads of a block, or of a cluster's blocks, as fibers, in turn (simulator.hpp).
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tensor/core/error.hpp"
#include "tests/cuda_simulator/device.hpp"
#include "tests/cuda_simulator/fiber.hpp"
#include "tests/cuda_simulator/races.hpp"
#include "tests/cuda_simulator/simulator.hpp"
#include "tests/cuda_simulator/tensor_core.hpp"

__thread uint3 threadIdx, blockIdx, blockDim, gridDim;

namespace skytape::cuda_simulator {
namespace {

constexpr unsigned char kUnwritten =
    0xff;  // bytes of fresh memory: NaN as f32 or f64, -1 as integer

/// In which order the threads of a block run.
struct Order {
  enum class Kind { forward, reverse, random } kind = Kind::forward;
  std::uint64_t seed = 0;

  static const Order& chosen() {
    static const Order order = [] {
      const char* const text = std::getenv("SKYTAPE_SIMULATED_ORDER");
      const std::string name = text == nullptr ? "forward" : text;
      if (name == "forward") return Order{};
      if (name == "reverse") return Order{Kind::reverse, 0};
      char* end = nullptr;
      const std::uint64_t seed = std::strtoull(name.c_str(), &end, 10);
      ENSURE(!name.empty() && *end == 0,
             "SKYTAPE_SIMULATED_ORDER: expected forward, reverse or a number, got ", name);
      return Order{Kind::random, seed};
    }();
    return order;
  }
};

struct Thread {
  enum class State { fresh, runs, at_barrier, at_cluster, in_warp, ended } state = State::fresh;
  uint3 index{};
  unsigned block = 0;      // of the cluster
  Fiber* fiber = nullptr;  // while it waits
  // The operation of its warp that the thread waits for.
  unsigned mask = 0;
  WarpOp op = nullptr;
  void* slot = nullptr;
  // Copies that it began and has not waited for, oldest first, and how many of them lie in groups.
  struct Copy {
    void* to;
    const void* from;
    std::size_t bytes;
  };
  std::vector<Copy> copies;
  std::vector<std::size_t> groups;  // of how many copies each
  bool unfenced = false;            // copies came that wgmma may not see
  // Products of wgmma that it has not waited for, and how many it has begun.
  struct Begun {
    float* target;
    std::array<float, 32> sums;
  };
  std::list<Begun> begun;
  bool sums_fenced = false;  // since it waited last, when the sums may have been written
  unsigned products = 0;
  unsigned votes = 0;  // of the whole block, __syncthreads_or
};

/// Dynamic shared memory begins at a multiple of these bytes, the most that a kernel asks for.
constexpr std::align_val_t kSharedAlignment{1024};
struct FreeAligned {
  void operator()(unsigned char* memory) const { operator delete[](memory, kSharedAlignment); }
};

/// A block of the cluster that runs.
struct Block {
  uint3 index{};
  bool begun = false;
  std::size_t live = 0, at_barrier = 0;  // threads
  bool votes[3] = {};                    // the last one, this one, the next one
  std::map<const void*, std::vector<unsigned char>> static_shared;
  std::unique_ptr<unsigned char[], FreeAligned> dynamic;
  std::size_t dynamic_bytes = 0;

  [[nodiscard]] bool holds(const void* at) const {
    const auto* const byte = static_cast<const unsigned char*>(at);
    return byte >= dynamic.get() && byte < dynamic.get() + dynamic_bytes;
  }
};

/// One core that runs one cluster at a time; most have one block.
class Multiprocessor {
 public:
  Multiprocessor() : home_(this_thread()) {}
  Multiprocessor(const Multiprocessor&) = delete;
  Multiprocessor& operator=(const Multiprocessor&) = delete;
  ~Multiprocessor() {
    for (Fiber* const fiber : fibers_) {
      free_fiber(*fiber);
      delete fiber;
    }
  }

  static Multiprocessor& current() {
    static __thread Multiprocessor* known = nullptr;  // without the guard of the next one
    if (known == nullptr) {
      static thread_local Multiprocessor instance;
      known = &instance;
    }
    return *known;
  }

  std::string run(const Kernel& kernel, std::int64_t first_block) {
    prepare(kernel, first_block);
    switch_fiber(home_, *idle_fiber());
    accesses_.end_block();
    if (error_.empty() && live_ > 0) error_ = deadlock();
    if (!error_.empty()) {
      error_ = join("block (", blockIdx.x, ", ", blockIdx.y, ", ", blockIdx.z, "): ", error_);
      restart_fibers();  // the threads that wait are forgotten
    }
    return std::exchange(error_, {});
  }

  void barrier() {
    Thread& t = threads_[running_];
    t.state = Thread::State::at_barrier;
    ++own_block().at_barrier;
    release_barrier(t.block);
    wait();
  }

  void cluster_barrier() {
    threads_[running_].state = Thread::State::at_cluster;
    ++at_cluster_;
    release_cluster();
    wait();
  }

  void* in_block(const void* own, unsigned rank) {
    if (rank >= blocks_.size()) fail(join("block ", rank, " of a cluster of ", blocks_.size()));
    if (!own_block().holds(own)) fail("a cluster's address: not in dynamic shared memory");
    const std::ptrdiff_t at = static_cast<const unsigned char*>(own) - own_block().dynamic.get();
    return blocks_[rank].dynamic.get() + at;
  }

  void warp_together(unsigned mask, WarpOp op, void* slot) {
    const unsigned own = running_ % kWarp;
    if ((mask >> own & 1u) == 0) fail(join("lane ", own, " is not in its own mask ", mask));
    Thread& t = threads_[running_];
    t.state = Thread::State::in_warp;
    t.mask = mask;
    t.op = op;
    t.slot = slot;
    release_warp(running_ / kWarp * kWarp, mask);
    wait();
  }

  /// A warp's instruction wants rows of 16 bytes.
  void check_row(const void* at) {
    if (reinterpret_cast<std::uintptr_t>(at) % 16 != 0) fail("ldmatrix: a misaligned row");
  }

  [[nodiscard]] unsigned running() const { return running_; }

  void access(const void* at, std::size_t bytes, bool writes) {
    for (std::size_t rank = 0; blocks_.size() > 1 && rank < blocks_.size(); ++rank) {
      const Block& block = blocks_[rank];
      if (!block.holds(at) || (block.begun && block.live > 0)) continue;
      fail(join("shared memory of the cluster's block ", rank,
                ", which has not begun or has ended"));
    }
    std::string race =
        accesses_.see(static_cast<const unsigned char*>(at), bytes, running_ / kWarp, writes);
    if (!race.empty()) fail(std::move(race));
  }

  void begin_copy(void* to, const void* from, std::size_t bytes) {
    if (bytes != 4 && bytes != 8 && bytes != 16) fail(join("cp.async: of ", bytes, " bytes"));
    for (const void* const at : {static_cast<const void*>(to), from}) {
      if (reinterpret_cast<std::uintptr_t>(at) % bytes != 0) fail("cp.async: a misaligned address");
    }
    access(to, bytes, true);
    std::memset(to, kUnwritten, bytes);
    threads_[running_].copies.push_back({to, from, bytes});
  }
  void commit_copies() {
    Thread& t = threads_[running_];
    t.groups.push_back(t.copies.size() -
                       std::accumulate(t.groups.begin(), t.groups.end(), std::size_t{0}));
  }
  void wait_for_copies(std::size_t groups) {
    Thread& t = threads_[running_];
    while (t.groups.size() > groups) {
      for (std::size_t i = 0; i < t.groups.front(); ++i) {
        access(t.copies[i].to, t.copies[i].bytes, true);
        std::memcpy(t.copies[i].to, t.copies[i].from, t.copies[i].bytes);
        t.unfenced = true;
      }
      t.copies.erase(t.copies.begin(),
                     t.copies.begin() + static_cast<std::ptrdiff_t>(t.groups.front()));
      t.groups.erase(t.groups.begin());
    }
  }

  bool vote(bool yes) {
    const unsigned now = threads_[running_].votes++ % 3;
    Block& block = own_block();
    block.votes[(now + 1) % 3] = false;  // nobody is there yet: that one begins after this barrier
    if (yes) block.votes[now] = true;
    barrier();
    return block.votes[now];
  }

  void fence_async_proxy() { threads_[running_].unfenced = false; }
  void wgmma_fence() { threads_[running_].sums_fenced = true; }
  std::uint32_t shared_address(const void* at) {
    if (!own_block().holds(at)) fail("an address: not in dynamic shared memory");
    return static_cast<std::uint32_t>(static_cast<const unsigned char*>(at) -
                                      own_block().dynamic.get());
  }
  float* begun_sums(float (&d)[32]) {
    for (const Thread& t : threads_) {
      if (t.unfenced) fail("wgmma: copies to shared memory are not fenced");
    }
    Thread& t = threads_[running_];
    if (!t.sums_fenced) fail("wgmma: no wgmma.fence since the thread waited last, or at all");
    ++t.products;
    for (Thread::Begun& b : t.begun) {
      if (b.target == d) return b.sums.data();
    }
    t.begun.push_back({d, {}});
    std::copy_n(d, 32, t.begun.back().sums.data());
    std::fill_n(d, 32, std::numeric_limits<float>::quiet_NaN());
    return t.begun.back().sums.data();
  }
  void await_products() {
    Thread& t = threads_[running_];
    for (const Thread::Begun& b : t.begun) std::copy_n(b.sums.data(), 32, b.target);
    t.begun.clear();
    t.sums_fenced = false;
  }
  void read_eight_of_b(std::uint64_t descriptor, int row, int column, std::uint16_t (&eight)[8]) {
    const auto field = [&](int from) {  // in units of 16 bytes
      return static_cast<std::size_t>(descriptor >> from & 0x3fff) * 16;
    };
    if (descriptor >> 49 != std::uint64_t{1} << 13) fail("wgmma: not the 128-byte swizzle");
    const auto r = static_cast<std::size_t>(row), c = static_cast<std::size_t>(column);
    std::size_t at = field(0) + r / 8 * field(32) + r % 8 * 128 + c * 2;
    at ^= (at >> 7 & 7) << 4;
    if (at + sizeof eight > own_block().dynamic_bytes) fail("wgmma: beyond shared memory");
    const unsigned char* const from = own_block().dynamic.get() + at;
    access(from, sizeof eight, false);
    std::memcpy(eight, from, sizeof eight);
  }

  void* shared_memory(const void* key, std::size_t bytes) {
    Block& block = own_block();
    const auto [at, fresh] = block.static_shared.try_emplace(key);
    if (fresh) {
      at->second.assign(bytes, kUnwritten);
      accesses_.add(at->second.data(), bytes);
    }
    std::size_t total = block.dynamic_bytes;
    for (const auto& [other, memory] : block.static_shared) total += memory.size();
    if (total > max_shared_bytes()) fail(join(total, " bytes of shared memory are too many"));
    return at->second.data();
  }
  unsigned char* dynamic_shared() { return own_block().dynamic.get(); }

 private:
  [[nodiscard]] Block& own_block() { return blocks_[threads_[running_].block]; }

  void prepare(const Kernel& kernel, std::int64_t first_block) {
    const dim3 grid = kernel.grid, size = kernel.block;
    kernel_ = &kernel;
    const auto rest = first_block / grid.x;
    gridDim = {grid.x, grid.y, grid.z};
    blockDim = {size.x, size.y, size.z};
    blockIdx = {static_cast<unsigned>(first_block % grid.x), static_cast<unsigned>(rest % grid.y),
                static_cast<unsigned>(rest / grid.y)};
    const unsigned threads = size.x * size.y * size.z, count = threads * kernel.cluster;
    threads_.assign(count, {});
    uint3 index{};
    for (unsigned i = 0; i < count; ++i) {
      threads_[i].index = index;
      threads_[i].block = i / threads;
      if (++index.x == size.x) index.x = 0, ++index.y;
      if (index.y == size.y) index.y = 0, ++index.z;
      if (index.z == size.z) index.z = 0;
    }
    if (order_.size() != count || Order::chosen().kind == Order::Kind::random) {
      order_.resize(count);
      std::iota(order_.begin(), order_.end(), 0u);
      if (Order::chosen().kind == Order::Kind::reverse) std::reverse(order_.begin(), order_.end());
      if (Order::chosen().kind == Order::Kind::random) {
        random_.seed(Order::chosen().seed + static_cast<std::uint64_t>(first_block));
        std::shuffle(order_.begin(), order_.end(), random_);
      }
    }
    next_fresh_ = 0;
    ready_.clear();
    live_ = count;
    at_cluster_ = 0;
    accesses_.start_block();
    blocks_.resize(kernel.cluster);
    for (unsigned rank = 0; rank < kernel.cluster; ++rank) {
      Block& block = blocks_[rank];
      block.index = {blockIdx.x + rank, blockIdx.y, blockIdx.z};
      block.begun = false;
      block.live = threads;
      block.at_barrier = 0;
      std::fill_n(block.votes, 3, false);
      block.static_shared.clear();
      // A new array: address sanitizer then knows its end.
      const std::size_t bytes = kernel.shared_bytes;
      block.dynamic.reset(static_cast<unsigned char*>(operator new[](bytes, kSharedAlignment)));
      block.dynamic_bytes = bytes;
      std::memset(block.dynamic.get(), kUnwritten, bytes);
      accesses_.add(block.dynamic.get(), bytes);
    }
  }

  /// A fiber's life: threads that have not begun, one after the other.
  static void fiber_main() {
    entered_fiber();
    Multiprocessor& self = current();
    for (;;) {
      self.begin(self.order_[self.next_fresh_++]);
      self.kernel_->thread();
      self.end();
      if (self.ready_.empty() && self.next_fresh_ < self.threads_.size()) continue;
      Fiber& own = *self.fiber_;
      self.idle_.push_back(&own);
      self.leave(own);
    }
  }

  void begin(unsigned number) {
    running_ = number;
    Thread& t = threads_[number];
    Block& block = blocks_[t.block];
    t.state = Thread::State::runs;
    block.begun = true;
    threadIdx = t.index;
    blockIdx = block.index;
  }
  void end() {
    threads_[running_].state = Thread::State::ended;
    --live_;
    --own_block().live;
    release_barrier(threads_[running_].block);
    release_cluster();
    const unsigned first = running_ / kWarp * kWarp;
    for (unsigned i = first; i < std::min<unsigned>(first + kWarp, threads_.size()); ++i) {
      if (threads_[i].state == Thread::State::in_warp) {
        release_warp(first, threads_[i].mask);
        break;
      }
    }
  }

  /// Stops the running thread until it is ready.
  void wait() {
    const unsigned self = running_;
    Fiber& own = *fiber_;
    threads_[self].fiber = &own;
    if (!ready_.empty() && ready_.back() == self) {
      ready_.pop_back();
    } else {
      leave(own);
    }
    begin(self);
  }

  /// Continues with whatever can run, else at home.
  void leave(Fiber& own) {
    if (!ready_.empty()) {
      Fiber* const next = threads_[ready_.back()].fiber;
      ready_.pop_back();
      fiber_ = next;
      switch_fiber(own, *next);
    } else if (next_fresh_ < threads_.size()) {
      switch_fiber(own, *idle_fiber());
    } else {
      switch_fiber(own, home_);
    }
  }

  /// Takes an idle fiber and makes it the running one.
  Fiber* idle_fiber() {
    if (idle_.empty()) {
      fibers_.push_back(new Fiber(make_fiber(fibers_.size())));
      start_fiber(*fibers_.back(), fibers_.size(), fiber_main);
      idle_.push_back(fibers_.back());
    }
    fiber_ = idle_.back();
    idle_.pop_back();
    return fiber_;
  }

  void restart_fibers() {
    idle_ = fibers_;
    for (std::size_t i = 0; i < fibers_.size(); ++i) start_fiber(*fibers_[i], i, fiber_main);
  }

  void release_barrier(unsigned rank) {
    Block& block = blocks_[rank];
    if (block.live == 0 || block.at_barrier < block.live) return;
    block.at_barrier = 0;
    check_warpgroups(rank);
    // A cluster's blocks reach into each other's memory: there, only its own barrier orders them.
    if (blocks_.size() == 1) accesses_.barrier();
    release(
        [&](const Thread& t) { return t.block == rank && t.state == Thread::State::at_barrier; });
  }
  /// Four warps take part in each of their products.
  void check_warpgroups(unsigned rank) {
    for (std::size_t i = 0; i < threads_.size(); ++i) {
      const Thread& t = threads_[i];
      if (t.block == rank && t.products != threads_[i / 128 * 128].products) {
        fail(join("wgmma: thread ", i, " has begun ", t.products,
                  " products, the first of its four "
                  "warps ",
                  threads_[i / 128 * 128].products));
      }
    }
  }
  void release_cluster() {
    if (live_ == 0 || at_cluster_ < live_) return;
    at_cluster_ = 0;
    accesses_.barrier();
    release([](const Thread& t) { return t.state == Thread::State::at_cluster; });
  }
  template <class F> void release(const F& waits) {
    for (auto number = order_.rbegin(); number != order_.rend(); ++number) {  // the last is next
      if (waits(threads_[*number])) make_ready(*number);
    }
  }

  void release_warp(unsigned first, unsigned mask) {
    const unsigned lanes =
        std::min<unsigned>(kWarp, static_cast<unsigned>(threads_.size()) - first);
    const Thread* one = nullptr;
    for (unsigned l = 0; l < lanes; ++l) {
      const Thread& t = threads_[first + l];
      if ((mask >> l & 1u) == 0 || t.state == Thread::State::ended) continue;
      if (t.state != Thread::State::in_warp) return;  // not all are here
      if (one != nullptr && (t.mask != one->mask || t.op != one->op)) {
        fail(join("lane ", l, " of warp ", first / kWarp,
                  " waits with another mask or in another operation than its warp"));
      }
      one = &t;
    }
    void* slots[kWarp] = {};
    for (unsigned l = 0; l < lanes; ++l) {
      const Thread& t = threads_[first + l];
      if ((mask >> l & 1u) != 0 && t.state == Thread::State::in_warp) slots[l] = t.slot;
    }
    one->op(slots);
    unsigned order[kWarp];
    std::iota(order, order + kWarp, 0u);
    if (Order::chosen().kind == Order::Kind::forward) std::reverse(order, order + kWarp);
    if (Order::chosen().kind == Order::Kind::random) std::shuffle(order, order + kWarp, random_);
    for (const unsigned l : order) {
      if (slots[l] != nullptr) make_ready(first + l);
    }
  }

  void make_ready(unsigned number) {
    threads_[number].state = Thread::State::runs;
    ready_.push_back(number);
  }

  std::string deadlock() const {
    const auto count = [&](Thread::State state) {
      return std::count_if(threads_.begin(), threads_.end(),
                           [&](const Thread& t) { return t.state == state; });
    };
    return join("deadlock: of ", threads_.size(), " threads ", count(Thread::State::at_barrier),
                " wait at __syncthreads, ", count(Thread::State::in_warp),
                " for other lanes of their warp, ", count(Thread::State::at_cluster),
                " at their cluster's barrier, ", count(Thread::State::ended), " have ended");
  }

  /// Ends the block with an error; does not return. As nothing on the thread's stack is destroyed,
  /// it empties the message here.
  void fail(std::string&& message) {
    error_ = join("thread ", running_, ": ", std::exchange(message, {}));
    switch_fiber(*fiber_, home_);
  }

  const Kernel* kernel_ = nullptr;
  std::vector<Thread> threads_;
  std::vector<unsigned> order_;  // in which threads begin
  std::size_t next_fresh_ = 0;   // in order_
  std::vector<unsigned> ready_;  // threads that may go on, the next one last
  std::vector<Block> blocks_;    // of the cluster
  std::size_t live_ = 0, at_cluster_ = 0;
  unsigned running_ = 0;  // thread
  Fiber home_;            // the simulator's own stack
  Fiber* fiber_ = nullptr;
  std::vector<Fiber*> fibers_, idle_;  // all; those without a thread
  SharedAccesses accesses_;
  std::mt19937_64 random_;
  std::string error_;
};

}  // namespace

bool order_is_reverse() { return Order::chosen().kind == Order::Kind::reverse; }

void warp_together(unsigned mask, WarpOp op, void* slot) {
  Multiprocessor::current().warp_together(mask, op, slot);
}
void watched_access(const void* at, std::size_t bytes, bool writes) {
  Multiprocessor::current().access(at, bytes, writes);
}
void begin_copy(void* shared, const void* global, std::size_t bytes) {
  Multiprocessor::current().begin_copy(shared, global, bytes);
}
void commit_copies() { Multiprocessor::current().commit_copies(); }
void wait_for_copies(std::size_t groups) { Multiprocessor::current().wait_for_copies(groups); }
void check_matrix_row(const std::uint16_t* row) { Multiprocessor::current().check_row(row); }
std::uint32_t shared_address(const void* at) {
  return Multiprocessor::current().shared_address(at);
}
void fence_async_proxy() { Multiprocessor::current().fence_async_proxy(); }
void wgmma_fence() { Multiprocessor::current().wgmma_fence(); }
float* begun_sums(float (&d)[32]) { return Multiprocessor::current().begun_sums(d); }
void read_eight_of_b(std::uint64_t descriptor, int row, int column, std::uint16_t (&eight)[8]) {
  Multiprocessor::current().read_eight_of_b(descriptor, row, column, eight);
}
void wgmma_await() { Multiprocessor::current().await_products(); }
int lane() { return static_cast<int>(Multiprocessor::current().running() % kWarp); }

void shuffle_lanes(void* const (&slots)[kWarp]) {
  for (void* const to : slots) {
    if (to == nullptr) continue;
    const auto& s = *static_cast<const Shuffle*>(to);
    const auto* const from = static_cast<const Shuffle*>(slots[s.source & (kWarp - 1)]);
    if (from == nullptr || from->bytes != s.bytes) {
      std::memset(s.result, kUnwritten, static_cast<std::size_t>(s.bytes));
    } else {
      std::memcpy(s.result, from->value, static_cast<std::size_t>(s.bytes));
    }
  }
}
void vote_lanes(void* const (&slots)[kWarp]) {
  unsigned ballot = 0;
  for (int l = 0; l < kWarp; ++l) {
    if (slots[l] != nullptr && static_cast<const Vote*>(slots[l])->yes) ballot |= 1u << l;
  }
  for (void* const slot : slots) {
    if (slot != nullptr) static_cast<Vote*>(slot)->ballot = ballot;
  }
}
void meet_lanes(void* const (&)[kWarp]) {}

void* shared_memory(const void* key, std::size_t bytes) {
  return Multiprocessor::current().shared_memory(key, bytes);
}
unsigned char* dynamic_shared() { return Multiprocessor::current().dynamic_shared(); }
void cluster_barrier() { Multiprocessor::current().cluster_barrier(); }
void* in_block(const void* own, unsigned rank) {
  return Multiprocessor::current().in_block(own, rank);
}

std::string run_blocks(const Kernel& kernel) {
  const std::int64_t blocks = std::int64_t{kernel.grid.x} * kernel.grid.y * kernel.grid.z;
  const std::int64_t threads = std::int64_t{kernel.block.x} * kernel.block.y * kernel.block.z;
  std::string error;
  std::mutex mutex;
  std::atomic<bool> failed = false;
  (void)Order::chosen();  // a wrong name throws here, not in a parallel region
#pragma omp parallel for schedule(dynamic) if (blocks > 1 && blocks * threads > 2048)
  for (std::int64_t block = 0; block < blocks; block += kernel.cluster) {
    if (failed) continue;
    const std::string message = Multiprocessor::current().run(kernel, block);
    if (message.empty()) continue;
    const std::lock_guard lock(mutex);
    failed = true;
    if (error.empty()) error = message;
  }
  return error;
}

}  // namespace skytape::cuda_simulator

void __syncthreads() { skytape::cuda_simulator::Multiprocessor::current().barrier(); }
int __syncthreads_or(int yes) {
  return skytape::cuda_simulator::Multiprocessor::current().vote(yes != 0) ? 1 : 0;
}
void __cluster_barrier_wait() { skytape::cuda_simulator::cluster_barrier(); }
void* __cluster_map_shared_rank(const void* own, unsigned rank) {
  return skytape::cuda_simulator::in_block(own, rank);
}
