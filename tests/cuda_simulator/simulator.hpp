// A simulated CUDA device, for tests on machines without a GPU: `make test CUDA=simulated` compiles
// every GPU source with g++ and runs its kernels on the CPU.
//
// The threads of a block, or of a cluster's blocks, are fibers: each runs until it reaches a
// barrier, a warp operation or its end, then the next one runs. Blocks run in any order, several at
// a time on several cores.
//
// It shows wrong indices, wrong launch geometry, too little shared memory, barriers that some
// threads miss, disagreeing warps, shared or fresh memory that is read before it is written (both
// are filled with NaN) or before a copy to it was waited for, host pointers given to kernels,
// launches on the default stream, calls that a stream capture forbids. Under MODE=asan also each
// access beyond a buffer's end or to a freed one, and host code that touches device memory.
// Kernels that loop over their work are launched with few blocks, so that every loop goes round.
// A missing barrier shows where the order of threads matters: SKYTAPE_SIMULATED_ORDER=forward (the
// default), reverse, or a number that seeds a random order. What is submitted to a second stream
// runs when the first one waits for it, in the reverse order immediately: code that reads it
// without waiting, or writes what it reads, gets other results.
//
// Races between warps in shared memory show in every order, but not under MODE=asan (races.hpp). So
// does access to the shared memory of another block of the cluster before it begins or after it
// ends.
//
// It cannot show races between lanes of a warp or between blocks, the GPU's memory model,
// nvcc's code, registers, rounding of the GPU's own exp and log, cuBLAS itself (cublas.cpp), and
// above all time: nothing measured here says anything about a GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/cuda_simulator/cuda_runtime.h"

namespace skytape::cuda_simulator {

// Limits of compute capability 8.0, and clusters as 9.0 has them.
inline constexpr std::size_t kDefaultSharedBytes = 48 * 1024;  // without cudaFuncSetAttribute
inline constexpr std::size_t kMaxSharedBytes = 163 * 1024;
inline constexpr unsigned kMaxCluster = 8;
inline constexpr int kMultiprocessors = 132;

struct Kernel {
  const char* name;
  const void* function;
  dim3 grid, block;
  unsigned cluster;                                            // of so many blocks along x
  std::size_t shared_bytes;                                    // dynamic
  std::vector<std::pair<const void*, std::size_t>> arguments;  // where each lies, and its bytes
  std::function<void()> thread;                                // the body of one thread
};

/// Blocks of a kernel that loops over its work, `most` on a device: so few that a test sees it
/// loop. While launches are only counted (LaunchesOnly), returns `most`.
[[nodiscard]] std::int64_t max_looping_grid(std::int64_t most);

/// Checks the launch and runs it, or records it where the stream captures. Errors wait for
/// cudaGetLastError.
void submit(Kernel kernel, cudaStream_t stream);

/// Runs kernel<<<grid, block, shared_bytes, stream>>>(args…), its blocks in clusters.
template <class... P, class... A>
void launch(const char* name, void (*kernel)(P...), dim3 grid, dim3 block, unsigned cluster,
            std::size_t shared_bytes, cudaStream_t stream, A&&... args) {
  const auto values = std::make_shared<std::tuple<P...>>(std::forward<A>(args)...);
  std::vector<std::pair<const void*, std::size_t>> arguments;
  const auto add = [&](auto& value) {
    __builtin_clear_padding(&value);  // submit looks for pointers in all words
    arguments.emplace_back(&value, sizeof value);
  };
  std::apply([&](auto&... value) { (add(value), ...); }, *values);
  submit({name, reinterpret_cast<const void*>(kernel), grid, block, cluster, shared_bytes,
          std::move(arguments), [kernel, values] { std::apply(kernel, *values); }},
         stream);
}

/// Since some moment; it grows with every call.
[[nodiscard]] std::int64_t global_nanoseconds();

/// `bytes` of the running block's static shared memory, the same for the same key.
[[nodiscard]] void* shared_memory(const void* key, std::size_t bytes);
[[nodiscard]] unsigned char* dynamic_shared();

template <class Array> Array& shared() {
  static char key;
  return *static_cast<Array*>(shared_memory(&key, sizeof(Array)));
}

/// Waits until all threads of the cluster's blocks have come here or ended.
void cluster_barrier();
/// Returns the address, in block `rank` of the cluster, that corresponds to `own` in this block's
/// dynamic shared memory.
[[nodiscard]] void* in_block(const void* own, unsigned rank);

/// Copies of the running thread (cp.async): begins to copy 4, 8 or 16 bytes to shared memory;
/// closes a group of copies; finishes all groups but the last few.
void begin_copy(void* shared, const void* global, std::size_t bytes);
void commit_copies();
void wait_for_copies(std::size_t groups);

/// Runs all blocks of a checked kernel; returns what went wrong, or nothing.
[[nodiscard]] std::string run_blocks(const Kernel& kernel);

/// While it lives, new streams run as late as they may: only when the host or another stream waits
/// for them. Who forgets to wait reads old contents.
struct StreamsRunLate {
  StreamsRunLate();
  ~StreamsRunLate();
  StreamsRunLate(const StreamsRunLate&) = delete;
  StreamsRunLate& operator=(const StreamsRunLate&) = delete;
};

/// While it lives, work of every stream runs when it is submitted: one behind the other.
struct StreamsRunAtOnce {
  StreamsRunAtOnce();
  ~StreamsRunAtOnce();
  StreamsRunAtOnce(const StreamsRunAtOnce&) = delete;
  StreamsRunAtOnce& operator=(const StreamsRunAtOnce&) = delete;
};

/// While it lives, the device says that it is of this compute capability, not of 8.0. Blocks may
/// have as much shared memory as there: 99 KB at 8.6, 8.9 and from 12.0 on, 227 KB at 9.0. What
/// else it can do stays the same.
class ComputeCapability {
 public:
  explicit ComputeCapability(int major, int minor = 0);
  ~ComputeCapability();
  ComputeCapability(const ComputeCapability&) = delete;
  ComputeCapability& operator=(const ComputeCapability&) = delete;

 private:
  int before_;
};
[[nodiscard]] std::size_t max_shared_bytes();

/// While it lives, the program holds no code for the device: whatever needs a kernel fails so.
class NotCompiled {
 public:
  explicit NotCompiled(cudaError_t status);
  ~NotCompiled();
  NotCompiled(const NotCompiled&) = delete;
  NotCompiled& operator=(const NotCompiled&) = delete;
};

/// While it lives, launches are checked and counted, but nothing runs: no kernel, product or fill.
/// Shows the geometry of sizes that a CPU cannot compute; fresh memory then costs only addresses.
class LaunchesOnly {
 public:
  LaunchesOnly();
  ~LaunchesOnly();
  LaunchesOnly(const LaunchesOnly&) = delete;
  LaunchesOnly& operator=(const LaunchesOnly&) = delete;

  struct Launch {
    std::string name;          // of a kernel; of a product by cuBLAS "product"
    std::uint64_t blocks = 0;  // of a kernel's grid
  };
  /// In order.
  [[nodiscard]] static const std::vector<Launch>& all();
  [[nodiscard]] static std::int64_t kernels();
  [[nodiscard]] static std::int64_t products();
  [[nodiscard]] static std::uint64_t largest_grid();  // blocks of a kernel
};

/// While one lives, CUPTI (cupti.cpp) refuses to record, says that it dropped records, or loses the
/// first record without saying so.
enum class TraceFault { none, refuses, drops, loses };
struct TraceFaults {
  explicit TraceFaults(TraceFault fault);
  ~TraceFaults();
  TraceFaults(const TraceFaults&) = delete;
  TraceFaults& operator=(const TraceFaults&) = delete;
};

/// While it lives, the device holds so many bytes more than it does now. What is freed into the
/// stream-ordered pool stays there until the pool is trimmed.
struct MemoryLimit {
  explicit MemoryLimit(std::size_t bytes);
  ~MemoryLimit();
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;
};

}  // namespace skytape::cuda_simulator
