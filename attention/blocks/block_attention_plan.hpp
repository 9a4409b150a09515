// The plan that the CPU and CUDA halves of block attention are given (block_attention_cpu.cpp,
// block_attention.cu, block_attention_tensor_core.cu).
#pragma once

#include <cstdint>

#include "attention/blocks/block_attention.hpp"
#include "attention/tiled/tiled_plan.hpp"
#include "tensor/core/device.hpp"
#include "tensor/launch/math.hpp"

namespace skytape::attention {

/// Sizes and tables of one call.
struct BlockPlan {
  std::int64_t batch = 0, heads = 0, tokens = 0, width = 0;  // B, H, N, D
  std::int64_t block = 0, row_blocks = 0, total = 0;         // c, Q, entries of a list
  std::int64_t lists = 1;                                    // A: 1 or H
  std::int64_t slots = 0;                                    // P, or N without a table
  std::int64_t rows = 0;                                     // of out: slots, or N: see row_at
  std::int64_t rounds = 1;                                   // R
  std::int64_t tables = 1;                                   // of tokens: B H, H or 1
  std::int64_t views = 1, places = 0;                        // sets of places, n
  double scale = 1;
  bool avoid_self = false;
  const std::int32_t* begin = nullptr;        // [Q + 1]
  const std::int32_t* row = nullptr;          // [total]
  const std::int32_t* order = nullptr;        // [Q]: query blocks, long lists first
  const std::int32_t* entries = nullptr;      // [A, total]
  const std::int32_t* token = nullptr;        // [tables, P] or null
  const std::int32_t* slot = nullptr;         // [B, H, R, N] or null
  const std::int32_t* query_place = nullptr;  // [views, places], or null: all listed keys are seen
  const std::int32_t* key_place = nullptr;    // [views, places]
  const std::int32_t* reach = nullptr;        // [views]

  /// Token in a slot of group g = b H + h, -1 for none.
  HD std::int64_t token_at(std::int64_t group, std::int64_t s) const {
    const std::int64_t t = token != nullptr ? token[group % tables * slots + s] : s;
    return t < tokens ? t : -1;
  }
  /// Row of out, lse and dout that belongs to a slot, -1 for none.
  HD std::int64_t row_at(std::int64_t group, std::int64_t s) const {
    return slot != nullptr ? s : token_at(group, s);
  }
  /// The lists of a group.
  HD const std::int32_t* list(std::int64_t group) const {
    return entries + (lists == 1 ? 0 : group % heads * total);
  }
  /// Returns whether query i may see key j; both are tokens.
  HD bool sees(std::int64_t group, std::int64_t i, std::int64_t j) const {
    if (key_place == nullptr) return true;
    const std::int64_t view = views == 1 ? 0 : group % heads;
    const std::int32_t at = key_place[view * places + j];
    return at == kSeenByAll || within(query_place[view * places + i] - at, reach[view]);
  }
  /// Returns whether two places that are `apart` are within reach of one another.
  HD static bool within(std::int32_t apart, std::int32_t reach) {
    return apart <= reach && -apart <= reach;
  }
};

/// Smallest block that a GPU's tensor cores serve: a warp takes 16 rows, which lie in one block.
inline constexpr std::int64_t kTensorCoreBlock = 16;

/// Returns whether a GPU computes a call of this shape on tensor cores, at tf32 and bf16. Others
/// stay in true fp32: wide heads' sums do not fit into registers, and tiny blocks would leave most
/// of a tile empty.
[[nodiscard]] inline bool fits_tensor_cores(const BlockPlan& plan) {
  return plan.width <= kTensorCoreWidth && plan.block >= kTensorCoreBlock;
}

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

/// The same on tensor cores, where on_tensor_cores(q) and fits_tensor_cores(plan); gradients by
/// rows of out. CUDA only.
void tensor_core_forward(const BlockPlan& plan, const BlockInputs& in, BlockForward& result);
void tensor_core_backward(const BlockPlan& plan, const BlockInputs& in, const Tensor& lse,
                          const Tensor& delta, const Tensor& dout, const BlockBackward& by_rows);

}  // namespace skytape::attention
