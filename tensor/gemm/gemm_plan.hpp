// A batched matrix product in memory, as the CPU and CUDA halves of gemm take it, and these halves;
// those of operand.cpp and precision.cpp.
#pragma once

#include <cstdint>

#include "tensor/gemm/gemm.hpp"
#include "tensor/gemm/precision.hpp"

namespace skytape {

bool has_bf16_on(Cuda);

namespace tensor {

/// C[g] = alpha op(A[g]) op(B[g]) + beta C[g] for g in [0, batch); row-major, packed rows.
struct GemmPlan {
  Op op_a = Op::none, op_b = Op::none;
  std::int64_t batch = 1, m = 0, n = 0, k = 0;
  std::int64_t stride_a = 0, stride_b = 0;  // elements between batch entries; 0: shared by all
  double alpha = 1, beta = 0;

  [[nodiscard]] std::int64_t lda() const { return op_a == Op::none ? k : m; }
  [[nodiscard]] std::int64_t ldb() const { return op_b == Op::none ? n : k; }
};

void gemm_on(Cpu, const GemmPlan& plan, const Tensor& a, const Tensor& b, Tensor& c);
void gemm_on(Cuda, const GemmPlan& plan, const Tensor& a, const Tensor& b, Tensor& c);
void gemm_sum_on(Cpu, const GemmPlan& plan, const Tensor& a, const Tensor& b, Tensor& c);
void gemm_sum_on(Cuda, const GemmPlan& plan, const Tensor& a, const Tensor& b, Tensor& c);

// Behind operand.cpp. x, y: [..., n], sums: [...].
void round_to_bf16_on(Cpu, const Tensor& x, Tensor& y);
void round_to_bf16_on(Cuda, const Tensor& x, Tensor& y);
void bf16_row_dot_on(Cpu, const Tensor& x, const Tensor& y, Tensor& sums);
void bf16_row_dot_on(Cuda, const Tensor& x, const Tensor& y, Tensor& sums);

}  // namespace tensor
}  // namespace skytape
