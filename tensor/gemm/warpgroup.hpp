// Products of four warps together, CUDA only: C [64, 64] += A [64, 16] B [16, 64] by wgmma, which
// compute capability 9.0 has, with A and B in bf16. C and A are in registers: each warp has 16 rows
// of them, mapped to its lanes as in tensor_core.hpp, C as eight accumulators side by side. B is in
// shared memory, from where the tensor cores read it themselves while the warps go on. So who
// starts a product waits for it before reading C, and before anybody writes A's registers or B.
//
// B's numbers lie in rows of 64, 128 bytes: its columns k = 0 … 15 from some number of each row on,
// or its rows. Eights of numbers are stored at places that differ from row to row, so that neither
// a row nor a column of eights meets in a bank (PTX ISA, "Shared memory matrix layout", 128-byte
// swizzle).
#pragma once

#include <cstdint>

#include "tensor/gemm/tensor_core.hpp"
#include "tensor/launch/cuda.hpp"

namespace skytape::cuda::warpgroup {

/// Whether the program was compiled for a GPU with wgmma (CUDA_ARCH=90a-real).
#if defined(SKYTAPE_SM90A) || defined(SKYTAPE_CUDA_SIMULATED)
inline constexpr bool kCompiled = true;
#else
inline constexpr bool kCompiled = false;
#endif
/// Returns whether the program was compiled for wgmma and runs on a device that has it.
inline bool available() { return kCompiled && device_facts().compute_capability == 9; }

inline constexpr int kThreads = 4 * kWarp;
inline constexpr int kRow = 64;                     // numbers of a row of B's
inline constexpr int kEight = 8;                    // numbers that stay together
inline constexpr int kRowsOfPattern = 8;            // after so many rows places repeat
inline constexpr std::size_t kPatternBytes = 1024;  // of these rows, to which B is aligned

/// Where the eight numbers from `column` on of a row lie.
__device__ inline int place(int row, int column) {
  return row * kRow + (column / kEight ^ row % kRowsOfPattern) * kEight;
}

namespace ptx {
#ifdef SKYTAPE_CUDA_SIMULATED
using cuda_simulator::fence_async_proxy;
using cuda_simulator::shared_address;
using cuda_simulator::wgmma_await;
using cuda_simulator::wgmma_fence;
using cuda_simulator::wgmma_m64n64k16_bf16;
#else
__device__ __forceinline__ std::uint32_t shared_address(const void* at) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(at));
}
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
__device__ __forceinline__ void fence_async_proxy() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_await() {
  asm volatile(
      "wgmma.commit_group.sync.aligned;\n"
      "wgmma.wait_group.sync.aligned 0;" ::
          : "memory");
}
/// d: C, of a lane; kTransposed: B's rows are those of shared memory, else its columns are.
template <bool kTransposed>
__device__ __forceinline__ void wgmma_m64n64k16_bf16(float (&d)[32], const std::uint32_t (&a)[4],
                                                     std::uint64_t b) {
  asm volatile(
      "{\n"
      ".reg .pred adds;\n"
      "setp.ne.b32 adds, 1, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "{%32, %33, %34, %35}, %36, adds, 1, 1, %37;\n"
      "}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
        "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
        "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),
        "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
        "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(kTransposed ? 1 : 0)
      : "memory");
}
#else  // another architecture of the same program, where available() says no
__device__ __forceinline__ void fence_async_proxy() { __trap(); }
__device__ __forceinline__ void wgmma_fence() { __trap(); }
__device__ __forceinline__ void wgmma_await() { __trap(); }
template <bool kTransposed>
__device__ __forceinline__ void wgmma_m64n64k16_bf16(float (&)[32], const std::uint32_t (&)[4],
                                                     std::uint64_t) {
  __trap();
}
#endif
#endif
}  // namespace ptx

/// Where and how wgmma finds B: from `first` on, rows in the places above, eight of them a pattern
/// apart.
__device__ inline std::uint64_t descriptor(const std::uint16_t* first) {
  constexpr std::uint64_t kUnit = 16;  // bytes
  constexpr std::uint64_t kSwizzle128 = 1;
  constexpr std::uint32_t kAddress = (1u << 18) - 1;
  return (ptx::shared_address(first) & kAddress) / kUnit |
         std::uint64_t{kPatternBytes / kUnit} << 32 | kSwizzle128 << 62;
}

/// Eight accumulators side by side as the registers of a product.
using Registers = float[32];
__device__ inline Registers& registers(Accumulator (&c)[8]) {
  static_assert(sizeof(Accumulator[8]) == sizeof(Registers));
  return reinterpret_cast<Registers&>(c);
}
__device__ inline Registers& registers(Accumulator (&c)[8][1]) {
  return reinterpret_cast<Registers&>(c);
}
__device__ inline Registers& registers(Accumulator (&c)[1][8]) { return registers(c[0]); }

/// Rows of A's, 16 numbers of each a product.
template <int kProducts> using Rows = TensorCore<Precision::bf16>::FragmentA[kProducts][1];

/// Keeps the compiler from moving reads or writes of registers across this place: C's, or A's.
template <class Sums> __device__ void pin(Sums& sums) {
#ifdef SKYTAPE_CUDA_SIMULATED
  (void)sums;
#else
#pragma unroll
  for (float& x : registers(sums)) asm volatile("" : "+f"(x)::"memory");
#endif
}
template <int kProducts> __device__ void pin(Rows<kProducts>& rows) {
#ifdef SKYTAPE_CUDA_SIMULATED
  (void)rows;
#else
#pragma unroll
  for (int i = 0; i < 4 * kProducts; ++i)
    asm volatile("" : "+r"(rows[i / 4][0].r[i % 4])::"memory");
#endif
}

/// Begins to add A B to the sums; B's columns are rows of shared memory from `first` on, k its
/// columns there (`first`: number 16 c of a row that is a multiple of eight).
template <class Sums>
__device__ void add_by_columns(Sums& sums, const TensorCore<Precision::bf16>::FragmentA& a,
                               const std::uint16_t* first) {
  ptx::wgmma_m64n64k16_bf16<false>(registers(sums), a.r, descriptor(first));
}
/// Begins to add A B to the sums; B's rows are 16 rows of shared memory from `first` on (a row that
/// is a multiple of eight).
template <class Sums> __device__ void add_by_rows(Sums& sums,
                                                  const TensorCore<Precision::bf16>::FragmentA& a,
                                                  const std::uint16_t* first) {
  ptx::wgmma_m64n64k16_bf16<true>(registers(sums), a.r, descriptor(first));
}
/// To be called before the first product of registers that the warps wrote: sums and rows of A's.
template <class... Operands> __device__ void begin(Operands&... operands) {
  (pin(operands), ...);
  ptx::wgmma_fence();
}
/// Waits for all products that were begun; `operands` as in begin().
template <class... Operands> __device__ void await(Operands&... operands) {
  ptx::wgmma_await();
  (pin(operands), ...);
}

}  // namespace skytape::cuda::warpgroup
