// Products of f32 matrices with both factors rounded to bf16 and f32 sums, for CPUs that multiply
// bf16 (AVX-512 BF16, or AMX), through oneDNN.
#pragma once

#include "tensor/gemm/gemm.hpp"

namespace skytape::tensor {

/// Why the CPU cannot compute bf16 products: the build lacks oneDNN or the CPU the instructions.
/// nullptr where it can.
[[nodiscard]] const char* why_no_bf16_on_cpu();

/// One serial product as gemm_cpu, by the calling thread alone, of no empty matrix. Needs
/// why_no_bf16_on_cpu() == nullptr.
void gemm_bf16_cpu(float alpha, const MatrixView<const float>& a, const MatrixView<const float>& b,
                   float beta, const MatrixView<float>& c);

}  // namespace skytape::tensor
