// The simulated GPU notices what it is for. Compiled in simulated builds only.
#ifdef SKYTAPE_CUDA_SIMULATED
#include "tests/cuda_simulator/simulator.hpp"
#include "tests/cuda_simulator/tensor_core.hpp"

#include <cuda_pipeline.h>

#include <cmath>
#include <string>
#include <vector>

#include "tensor/core/device.hpp"
#include "tensor/core/error.hpp"
#include "tests/support/doctest.hpp"

using namespace skytape;

namespace {

/// A stream and device memory that live as long as a test.
struct Bench {
  cudaStream_t stream = nullptr;
  float* x = nullptr;  // [64] floats
  Bench() {
    REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    REQUIRE(cudaMallocAsync(reinterpret_cast<void**>(&x), 64 * sizeof(float), stream) ==
            cudaSuccess);
  }
  ~Bench() {
    (void)cudaFreeAsync(x, stream);
    (void)cudaStreamDestroy(stream);
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  template <class... P> std::string run(void (*kernel)(P...), dim3 grid, dim3 block,
                                        std::size_t shared, P... args) const {
    return run_clusters(kernel, 1, grid, block, shared, args...);
  }
  template <class... P> std::string run_clusters(void (*kernel)(P...), unsigned cluster, dim3 grid,
                                                 dim3 block, std::size_t shared, P... args) const {
    cuda_simulator::launch("test", kernel, grid, block, cluster, shared, stream, args...);
    const cudaError_t status = cudaGetLastError();
    return status == cudaSuccess ? "" : cudaGetErrorString(status);
  }
  std::vector<float> read() const {
    std::vector<float> host(64);
    REQUIRE(cudaMemcpyAsync(host.data(), x, 64 * sizeof(float), cudaMemcpyDeviceToHost, stream) ==
            cudaSuccess);
    return host;
  }
};

bool mentions(const std::string& text, const char* part) { return text.find(part) != text.npos; }

void number_threads(float* x) {
  x[blockIdx.x * blockDim.x + threadIdx.x] =
      static_cast<float>(100 * blockIdx.x + 10 * threadIdx.y + threadIdx.x);
}
void add_one(float* x) { x[threadIdx.x] += 1; }
void write_through(float* x) { *x = 1; }
/// y = x reversed, by a copy to shared memory that passes by the registers.
void reverse_by_copy(const float* x, float* y, bool waits, bool barrier) {
  auto* const shared = reinterpret_cast<float*>(cuda_simulator::dynamic_shared());
  __pipeline_memcpy_async(shared + threadIdx.x, x + threadIdx.x, sizeof(float));
  __pipeline_commit();
  if (waits) __pipeline_wait_prior(0);
  if (barrier) __syncthreads();
  y[threadIdx.x] = shared[blockDim.x - 1 - threadIdx.x];
}
/// Thread 0 copies x[0] and then x[1] and waits for all groups of them but the last `open`.
void copy_in_groups(float* x, int open) {
  auto* const shared = reinterpret_cast<float*>(cuda_simulator::dynamic_shared());
  for (int i = 0; i < 2; ++i) {
    __pipeline_memcpy_async(shared + i, x + i, sizeof(float));
    __pipeline_commit();
  }
  __pipeline_wait_prior(static_cast<std::size_t>(open));
  for (int i = 0; i < 2; ++i) x[2 + i] = shared[i];
}
void copy_misaligned(float* x) {
  auto* const shared = reinterpret_cast<float*>(cuda_simulator::dynamic_shared());
  __pipeline_memcpy_async(shared + 1, x, 16);
}
void reverse_block(float* x, bool barrier) {
  auto* const shared = reinterpret_cast<float*>(cuda_simulator::dynamic_shared());
  shared[threadIdx.x] = static_cast<float>(threadIdx.x);
  if (barrier) __syncthreads();
  x[threadIdx.x] = shared[blockDim.x - 1 - threadIdx.x];
}
/// Loads the matrices in which row r of matrix m is 64 m + 8 r to 64 m + 8 r + 7: each lane writes
/// the two numbers that it gets of matrix m.
void load_matrix(float* x, int m, bool transposed, int shift) {
  auto* const shared = reinterpret_cast<std::uint16_t*>(cuda_simulator::dynamic_shared());
  const unsigned lane = threadIdx.x;
  for (unsigned i = 0; i < 8; ++i) shared[8 * lane + i] = static_cast<std::uint16_t>(8 * lane + i);
  __syncthreads();
  std::uint32_t r[4];
  const std::uint16_t* const row = shared + 8 * lane + shift;
  if (transposed) {
    cuda_simulator::ldmatrix_x4_trans(r, row);
  } else {
    cuda_simulator::ldmatrix_x4(r, row);
  }
  x[2 * lane] = static_cast<float>(r[m] & 0xffffu);
  x[2 * lane + 1] = static_cast<float>(r[m] >> 16);
}
enum class Fault { none, unfenced, sums_unfenced, unawaited, apart, unswizzled };
/// x = row 63 of A B by four warps, where A's rows 56 to 63 are twos, the others ones, and B's
/// columns are numbers 16 to 31 of 64 rows in shared memory; number c of row r is r + 1 if c = r,
/// else 0.
void multiply_together(float* x, Fault fault) {
  auto* const shared = reinterpret_cast<std::uint16_t*>(cuda_simulator::dynamic_shared());
  for (unsigned i = threadIdx.x; i < 64 * 64; i += 128) {
    const unsigned row = i / 64, column = i % 64, place = column / 8 ^ row % 8;
    shared[row * 64 + place * 8 + column % 8] =
        Bf16(row == column ? static_cast<float>(row + 1) : 0.0f).bits;
  }
  if (threadIdx.x == 0) {
    __pipeline_memcpy_async(shared + 64 * 64, x, 16);
    __pipeline_commit();
    __pipeline_wait_prior(0);
  }
  if (fault != Fault::unfenced) cuda_simulator::fence_async_proxy();
  __syncthreads();
  const std::uint32_t ones = cuda_simulator::round_two_bf16(1, 1);
  const std::uint32_t twos = cuda_simulator::round_two_bf16(2, 2);
  const std::uint32_t last = threadIdx.x / 32 == 3 ? twos : ones;
  const std::uint64_t swizzle = fault == Fault::unswizzled ? 0 : 1;
  const std::uint64_t columns = cuda_simulator::shared_address(shared + 16) / 16 |
                                std::uint64_t{1024 / 16} << 32 | swizzle << 62;
  float sums[32] = {};
  if (fault != Fault::sums_unfenced) cuda_simulator::wgmma_fence();
  if (fault != Fault::apart || threadIdx.x >= 32) {
    cuda_simulator::wgmma_m64n64k16_bf16<false>(sums, {ones, last, ones, last}, columns);
  }
  if (fault != Fault::unawaited) cuda_simulator::wgmma_await();
  __syncthreads();
  if (threadIdx.x >= 124) {
    for (unsigned i = 0; i < 16; ++i) {
      x[i / 2 * 8 + threadIdx.x % 4 * 2 + i % 2] = sums[i / 2 * 4 + 2 + i % 2];
    }
  }
}
void sum_warp(float* x) {
  float sum = static_cast<float>(threadIdx.x);
  for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
  if (__ballot_sync(0xffffffffu, threadIdx.x % 2) == 0xaaaaaaaau) x[threadIdx.x] = sum;
}
void meet_apart(float*) {
  if (threadIdx.x == 0) {
    __syncthreads();
  } else {
    __syncwarp();
  }
}
void disagree(float*) {
  if (threadIdx.x == 0) {
    __syncwarp();
  } else {
    (void)__ballot_sync(0xffffffffu, 1);
  }
}
void meet_elsewhere(float*) {
  if (blockIdx.x == 1 && threadIdx.x < 16) {
    __syncthreads();
  } else {
    __cluster_barrier_wait();
  }
}
/// Each thread leaves 100 times its block's number and its own with the other block of the cluster;
/// the first 16 of a block then read what they got. With a barrier before and after, or without.
void give_to_other(float* x, bool before, bool after) {
  auto* const shared = reinterpret_cast<float*>(cuda_simulator::dynamic_shared());
  if (before) __cluster_barrier_wait();
  auto* const theirs =
      static_cast<float*>(__cluster_map_shared_rank(shared, 1 - blockIdx.x % 2)) + threadIdx.x;
  *theirs = static_cast<float>(100 * blockIdx.x + threadIdx.x);
  if (after) __cluster_barrier_wait();
  if (threadIdx.x < 16) x[16 * blockIdx.x + threadIdx.x] = shared[threadIdx.x];
  __cluster_barrier_wait();
}
/// The first block ends before the second one writes to it. Unused where races are not watched.
[[maybe_unused]] void write_late(float*) {
  auto* const shared = reinterpret_cast<float*>(cuda_simulator::dynamic_shared());
  __cluster_barrier_wait();
  if (blockIdx.x == 0) return;
  __cluster_barrier_wait();  // of those that have not ended
  *static_cast<float*>(__cluster_map_shared_rank(shared, 0)) = 1;
}
void end_early(float* x) {
  if (threadIdx.x >= 32) return;
  __syncthreads();
  x[threadIdx.x] = 1;
}

/// Warps write byte 0 of `own` bytes each, which overlap where own is 0, and read the other's after
/// `barriers` barriers; then warp 0 writes its byte again. Unused where races are not watched.
[[maybe_unused]] void touch_bytes(float* x, int own, int barriers) {
  auto& bytes = cuda_simulator::shared<unsigned char[64]>();
  const unsigned warp = threadIdx.x / 32;
  if (threadIdx.x % 32 == 0) bytes[warp * own] = 1;
  if (barriers > 0) __syncthreads();
  x[threadIdx.x] = bytes[(1 - warp) * own];
  if (barriers > 1) __syncthreads();
  if (threadIdx.x == 0) bytes[0] = 2;
}

}  // namespace

TEST_CASE("simulated threads know their place; barriers and shuffles meet") {
  const Bench b;
  CHECK(std::isnan(b.read()[5]));  // fresh memory
  CHECK(b.run(number_threads, 2, 3, 0, b.x) == "");
  CHECK(b.read()[4] == 101);
  CHECK(b.run(reverse_block, 1, 64, 256, b.x, true) == "");
  CHECK(b.read()[10] == 53);
  CHECK(b.run(sum_warp, 1, 64, 0, b.x) == "");
  CHECK(b.read()[7] == 31 * 16);
  CHECK(b.read()[40] == 31 * 16 + 32 * 32);
  CHECK(b.run(end_early, 1, 64, 0, b.x) == "");
  CHECK(b.read()[31] == 1);
}

TEST_CASE("a missing barrier shows as NaN") {
  const Bench b;
  CHECK(b.run(reverse_block, 1, 32, 128, b.x, false) == "");
  int unwritten = 0;
  for (const float x : b.read()) unwritten += std::isnan(x) ? 1 : 0;
  CHECK(unwritten > 32);  // the other half of x is fresh
}

#ifdef __SANITIZE_THREAD__
TEST_CASE("two warps that touch a byte of shared memory between two barriers race if one writes") {
  const Bench b;
  CHECK(mentions(b.run(reverse_block, 1, 64, 256, b.x, false), "a race between warps"));
  CHECK(b.run(reverse_block, 1, 64, 256, b.x, true) == "");
  CHECK(b.run(touch_bytes, 1, 64, 0, b.x, 1, 2) == "");  // neighbours do not race
  CHECK(mentions(b.run(touch_bytes, 1, 64, 0, b.x, 0, 2),
                 "writes byte 0 of 64 of shared memory, which another warp wrote"));
  CHECK(mentions(b.run(touch_bytes, 1, 64, 0, b.x, 1, 0), "a race between warps"));
  const std::string late = b.run(touch_bytes, 2, 64, 0, b.x, 1, 1);  // read, then written again
  CHECK(mentions(late, "byte 0 of 64 of shared memory"));
  CHECK(b.run(touch_bytes, 1, 32, 0, b.x, 0, 0) == "");  // one warp
  const float* const from = b.x;
  CHECK(mentions(b.run(reverse_by_copy, 1, 64, 256, from, b.x, true, false), "a race between"));
}
#endif

TEST_CASE("what is copied to shared memory is NaN until its thread has waited") {
  const Bench b;
  CHECK(b.run(number_threads, 1, 32, 0, b.x) == "");
  const float* const from = b.x;
  float* const to = b.x + 32;
  CHECK(b.run(reverse_by_copy, 1, 32, 128, from, to, true, true) == "");
  CHECK(b.read()[32 + 4] == 27);
  CHECK(b.run(reverse_by_copy, 1, 32, 128, from, to, false, true) == "");
  CHECK(std::isnan(b.read()[32 + 4]));
  CHECK(b.run(copy_in_groups, 1, 1, 8, b.x, 0) == "");
  CHECK(b.read()[3] == 1);
  CHECK(b.run(copy_in_groups, 1, 1, 8, b.x, 1) == "");
  CHECK(b.read()[2] == 0);
  CHECK(std::isnan(b.read()[3]));
  CHECK(mentions(b.run(copy_misaligned, 1, 1, 64, b.x), "cp.async: a misaligned address"));
}

TEST_CASE("threads that never meet are a deadlock, lanes that disagree an error") {
  const Bench b;
  CHECK(mentions(b.run(meet_apart, 1, 32, 0, b.x),
                 "of 32 threads 1 wait at __syncthreads, 31 for other lanes of their warp"));
  CHECK(mentions(b.run(disagree, 1, 32, 0, b.x), "in another operation than its warp"));
  CHECK(mentions(b.run_clusters(meet_elsewhere, 2, 2, 32, 0, b.x),
                 "of 64 threads 16 wait at __syncthreads, 0 for other lanes of their warp, 48 at"));
  CHECK(b.run(add_one, 1, 1, 0, b.x) == "");  // the device still works
}

TEST_CASE("blocks of a cluster write into each other's shared memory between its barriers") {
  const Bench b;
  REQUIRE(cudaMemsetAsync(b.x, 0, 256, b.stream) == cudaSuccess);
  // Two clusters of two blocks.
  CHECK(b.run_clusters(give_to_other, 2, 4, 32, 128, b.x, true, true) == "");
  for (unsigned i = 0; i < 64; ++i) {
    CAPTURE(i);
    CHECK(b.read()[i] == static_cast<float>(100 * (i / 16 ^ 1) + i % 16));
  }
  CHECK(mentions(b.run_clusters(give_to_other, 2, 3, 32, 128, b.x, true, true),
                 "clusters of 2 blocks"));
  CHECK(mentions(b.run_clusters(give_to_other, 2, 4, 48, 192, b.x, true, true), "not whole warps"));
  CHECK(mentions(b.run(give_to_other, 4, 32, 128, b.x, true, true), "of a cluster of 1"));
}

#ifdef __SANITIZE_THREAD__
TEST_CASE("a block of a cluster that writes to another too early, too late or unordered is seen") {
  const Bench b;
  CHECK(mentions(b.run_clusters(give_to_other, 2, 4, 32, 128, b.x, false, true),
                 "which has not begun or"));
  CHECK(mentions(b.run_clusters(give_to_other, 2, 4, 32, 128, b.x, true, false),
                 "a race between warps"));
  CHECK(mentions(b.run_clusters(write_late, 2, 2, 32, 128, b.x), "has not begun or has ended"));
}
#endif

TEST_CASE("a warp loads matrices as they are or transposed, from rows of 16 bytes") {
  const Bench b;
  for (int m = 0; m < 4; ++m) {
    CHECK(b.run(load_matrix, 1, 32, 1024, b.x, m, false, 0) == "");
    const std::vector<float> rows = b.read();
    CHECK(b.run(load_matrix, 1, 32, 1024, b.x, m, true, 0) == "");
    const std::vector<float> columns = b.read();
    for (int lane = 0; lane < 32; ++lane) {
      const int g = lane / 4, t = lane % 4;
      for (int e = 0; e < 2; ++e) {
        CAPTURE(lane);
        CHECK(rows[2 * lane + e] == 64 * m + 8 * g + 2 * t + e);  // PTX ISA, ldmatrix
        CHECK(columns[2 * lane + e] == 64 * m + 8 * (2 * t + e) + g);
      }
    }
  }
  CHECK(mentions(b.run(load_matrix, 1, 32, 2048, b.x, 0, false, 1), "ldmatrix: a misaligned row"));
}

TEST_CASE("four warps multiply by what they fenced, together, and wait for the sums") {
  const Bench bench;
  const auto run = [&](Fault fault) {
    return bench.run(multiply_together, dim3(1), dim3(128), 64 * 64 * 2 + 16, bench.x, fault);
  };
  REQUIRE(run(Fault::none).empty());
  const std::vector<float> row = bench.read();
  for (int i = 0; i < 64; ++i) {
    CAPTURE(i);
    CHECK(row[i] == (i >= 16 && i < 32 ? 2 * (i + 1) : 0));
  }
  REQUIRE(run(Fault::unawaited).empty());
  CHECK(std::isnan(bench.read()[20]));
  CHECK(mentions(run(Fault::unfenced), "copies to shared memory are not fenced"));
  CHECK(mentions(run(Fault::sums_unfenced), "no wgmma.fence since the thread waited last"));
  CHECK(mentions(run(Fault::apart), "has begun 1 products, the first of its four warps 0"));
  CHECK(mentions(run(Fault::unswizzled), "not the 128-byte swizzle"));
}

TEST_CASE("launches that a GPU refuses are refused") {
  const Bench b;
  CHECK(mentions(b.run(add_one, 0, 32, 0, b.x), "an empty grid or block"));
  CHECK(mentions(b.run(add_one, 1, 1025, 0, b.x), "block (1025, 1, 1) is too large"));
  CHECK(mentions(b.run(add_one, dim3(1, 65536), 32, 0, b.x), "grid (1, 65536, 1) is too large"));
  CHECK(mentions(b.run(add_one, 1, 32, 50000, b.x), "50000 bytes of dynamic shared memory, 49152"));
  CHECK(cudaFuncSetAttribute(reinterpret_cast<const void*>(add_one),
                             cudaFuncAttributeMaxDynamicSharedMemorySize, 170000) != cudaSuccess);
  (void)cudaGetLastError();
  float host = 0;
  CHECK(mentions(b.run(write_through, 1, 1, 0, &host), "which is not device memory"));
  CHECK(host == 0);
  cuda_simulator::launch("test", add_one, 1, 1, 1, 0, nullptr, b.x);
  CHECK(cudaGetLastError() != cudaSuccess);  // the default stream
}

TEST_CASE("a captured graph replays its kernels; waiting spoils the capture") {
  const Bench b;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  REQUIRE(cudaMemsetAsync(b.x, 0, 256, b.stream) == cudaSuccess);
  REQUIRE(cudaStreamBeginCapture(b.stream, cudaStreamCaptureModeGlobal) == cudaSuccess);
  void* scratch = nullptr;
  CHECK(cudaMallocAsync(&scratch, 256, b.stream) == cudaSuccess);
  CHECK(b.run(add_one, 1, 64, 0, b.x) == "");
  CHECK(cudaMemcpyAsync(scratch, b.x, 256, cudaMemcpyDefault, b.stream) == cudaSuccess);
  CHECK(b.run(add_one, 1, 64, 0, static_cast<float*>(scratch)) == "");
  CHECK(cudaMemcpyAsync(b.x, scratch, 256, cudaMemcpyDefault, b.stream) == cudaSuccess);
  CHECK(cudaFreeAsync(scratch, b.stream) == cudaSuccess);
  REQUIRE(cudaStreamEndCapture(b.stream, &graph) == cudaSuccess);
  CHECK(b.read()[3] == 0);  // only recorded so far
  REQUIRE(cudaGraphInstantiate(&exec, graph) == cudaSuccess);
  for (int launch = 0; launch < 3; ++launch) CHECK(cudaGraphLaunch(exec, b.stream) == cudaSuccess);
  CHECK(b.read()[3] == 6);
  CHECK(cudaGraphExecDestroy(exec) == cudaSuccess);
  CHECK(cudaGraphDestroy(graph) == cudaSuccess);

  REQUIRE(cudaStreamBeginCapture(b.stream, cudaStreamCaptureModeGlobal) == cudaSuccess);
  CHECK(cudaFreeAsync(b.x, b.stream) == cudaErrorInvalidValue);  // not this graph's
  CHECK(cudaStreamSynchronize(b.stream) == cudaErrorStreamCaptureUnsupported);
  CHECK(cudaStreamEndCapture(b.stream, &graph) == cudaErrorStreamCaptureInvalidated);
  (void)cudaGetLastError();
}
#endif
