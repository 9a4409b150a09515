// What the CPU and CUDA halves of block attention are given (block_attention_cpu.cpp,
// block_attention.cu).
#pragma once

#include <cstdint>

#include "attention/blocks/block_attention.hpp"
#include "tensor/core/device.hpp"
#include "tensor/launch/math.hpp"

namespace skytape::attention {

/// Sizes and tables of one call.
struct BlockPlan {
  std::int64_t batch = 0, heads = 0, tokens = 0, width = 0;  // B, H, N, D
  std::int64_t block = 0, row_blocks = 0, total = 0;         // c, Q, entries of a list
  std::int64_t lists = 1;                                    // A: 1 or H
  std::int64_t rows = 0;                                     // of out: P, or N without a table
  std::int64_t rounds = 1;                                   // R
  double scale = 1;
  bool avoid_self = false;
  const std::int32_t* begin = nullptr;    // [Q + 1]
  const std::int32_t* row = nullptr;      // [total]
  const std::int32_t* entries = nullptr;  // [A, total]
  const std::int32_t* token = nullptr;    // [B, H, P] or null
  const std::int32_t* slot = nullptr;     // [B, H, R, N] or null

  /// Token in a slot of group g = b H + h, -1 for none.
  HD std::int64_t token_at(std::int64_t group, std::int64_t s) const {
    if (token != nullptr) return token[group * rows + s];
    return s < tokens ? s : -1;
  }
  /// The lists of a group.
  HD const std::int32_t* list(std::int64_t group) const {
    return entries + (lists == 1 ? 0 : group % heads * total);
  }
};

struct BlockInputs {
  Tensor q, k, v;  // [B, H, N, D]
  Tensor mask;     // [B, N]
};

void block_forward_on(Cpu, const BlockPlan& plan, const BlockInputs& in, BlockForward& result);
void block_forward_on(Cuda, const BlockPlan& plan, const BlockInputs& in, BlockForward& result);

/// With e_ij = w_ij (dout_i.v_j - delta_i), zero where j is i's own key and avoid_self:
///   dq_i = scale sum_j e_ij k_j    dk_j = scale sum_i e_ij q_i    dv_j = sum_i w_ij dout_i
/// lse, delta: by rows of out.
void block_backward_on(Cpu, const BlockPlan& plan, const BlockInputs& in, const Tensor& lse,
                       const Tensor& delta, const Tensor& dout, BlockBackward& result);
void block_backward_on(Cuda, const BlockPlan& plan, const BlockInputs& in, const Tensor& lse,
                       const Tensor& delta, const Tensor& dout, BlockBackward& result);

}  // namespace skytape::attention
