// A batched matrix product in memory, as the CPU and CUDA halves of gemm take it.
#pragma once

#include <cstdint>

#include "tensor/gemm/gemm.hpp"

namespace skytape::tensor {

/// C[g] = alpha op(A[g]) op(B[g]) + beta C[g] for g in [0, batch); row-major, packed rows.
struct GemmPlan {
  Op op_a = Op::none, op_b = Op::none;
  std::int64_t batch = 1, m = 0, n = 0, k = 0;
  std::int64_t stride_a = 0, stride_b = 0;  // elements between batch entries; 0: shared by all
  double alpha = 1, beta = 0;

  [[nodiscard]] std::int64_t lda() const { return op_a == Op::none ? k : m; }
  [[nodiscard]] std::int64_t ldb() const { return op_b == Op::none ? n : k; }
};

}  // namespace skytape::tensor
