// Products of f32 matrices with both factors rounded to bf16 and f32 sums, for CPUs that multiply
// bf16 (AVX-512 BF16, or AMX), through oneDNN.
#pragma once

#include <cstdint>

#include "tensor/gemm/gemm.hpp"

namespace skytape::tensor {

/// Why the CPU cannot compute bf16 products: the build lacks oneDNN or the CPU the instructions.
/// nullptr where it can.
[[nodiscard]] const char* why_no_bf16_on_cpu();

/// One serial product as gemm_cpu, by the calling thread alone; m, n, k > 0. Needs
/// why_no_bf16_on_cpu() == nullptr.
void gemm_bf16_cpu(Op op_a, Op op_b, std::int64_t m, std::int64_t n, std::int64_t k, float alpha,
                   const float* a, std::int64_t lda, const float* b, std::int64_t ldb, float beta,
                   float* c, std::int64_t ldc);

}  // namespace skytape::tensor
