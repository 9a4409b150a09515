// mma.sync, wgmma and ldmatrix of the simulated device, lane by lane as the PTX ISA lays fragments
// out.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "tensor/core/bf16.hpp"

namespace skytape::cuda_simulator {

/// cvt.rna.tf32.f32: to 10 bits of mantissa, ties away from zero.
[[nodiscard]] std::uint32_t round_tf32(float x);
/// cvt.rn.bf16x2.f32: each to the nearest bf16.
[[nodiscard]] inline std::uint32_t round_two_bf16(float first, float second) {
  return Bf16(first).bits | std::uint32_t{Bf16(second).bits} << 16;
}

/// mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32: d += a b.
void mma_m16n8k8_tf32(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]);
/// mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32: d += a b.
void mma_m16n8k16_bf16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]);

/// ex2.approx.ftz.f32: 2^x; what is too small for a normal number becomes 0.
[[nodiscard]] float exp2(float x);
/// rcp.approx.ftz.f32, of a normal number.
[[nodiscard]] inline float reciprocal(float x) { return 1 / x; }
/// rsqrt.approx.ftz.f32, of a normal number.
[[nodiscard]] inline float reciprocal_sqrt(float x) { return 1 / std::sqrt(x); }

/// A lane's address for ldmatrix, and its result.
struct MatrixRow {
  std::uint16_t numbers[8];
  std::uint32_t* result;  // [4]
};
void check_matrix_row(const std::uint16_t* row);  // its alignment
void exchange_matrices(MatrixRow& row, bool transposed);

// Here, as races are watched where kernels are compiled.
inline MatrixRow matrix_row(std::uint32_t (&r)[4], const std::uint16_t* row) {
  check_matrix_row(row);
  MatrixRow own{{}, r};
  std::copy_n(row, 8, own.numbers);
  return own;
}
/// ldmatrix.sync.aligned.m8n8.x4.shared.b16
inline void ldmatrix_x4(std::uint32_t (&r)[4], const std::uint16_t* row) {
  MatrixRow own = matrix_row(r, row);
  exchange_matrices(own, false);
}
/// ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16
inline void ldmatrix_x4_trans(std::uint32_t (&r)[4], const std::uint16_t* row) {
  MatrixRow own = matrix_row(r, row);
  exchange_matrices(own, true);
}

/// An address in shared memory as the device's instructions have it.
[[nodiscard]] std::uint32_t shared_address(const void* at);
/// fence.proxy.async: what the thread wrote to shared memory is seen by wgmma, after a barrier.
void fence_async_proxy();
/// wgmma.fence: what the thread wrote to sums is there for the products that follow.
void wgmma_fence();
/// wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 with A in registers: d += a b when it is
/// waited for; until then d holds NaN. An error where a thread's copies to shared memory or its
/// sums are not fenced, or the descriptor is not of rows with the 128-byte swizzle.
void begin_wgmma(float (&d)[32], const std::uint32_t (&a)[4], std::uint64_t b, bool transposed);
template <bool kTransposed>
void wgmma_m64n64k16_bf16(float (&d)[32], const std::uint32_t (&a)[4], std::uint64_t b) {
  begin_wgmma(d, a, b, kTransposed);
}
/// wgmma.commit_group and wgmma.wait_group 0.
void wgmma_await();

}  // namespace skytape::cuda_simulator
