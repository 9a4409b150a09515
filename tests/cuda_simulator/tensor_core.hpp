// mma.sync of the simulated device, lane by lane as the PTX ISA lays fragments out.
#pragma once

#include <cstdint>

namespace skytape::cuda_simulator {

/// cvt.rna.tf32.f32: to 10 bits of mantissa, ties away from zero.
[[nodiscard]] std::uint32_t round_tf32(float x);
/// cvt.rn.bf16.f32: to 7 bits of mantissa, ties to even.
[[nodiscard]] std::uint16_t round_bf16(float x);

/// mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32: d += a b.
void mma_tf32(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]);
/// mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32: d += a b.
void mma_bf16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]);

}  // namespace skytape::cuda_simulator
