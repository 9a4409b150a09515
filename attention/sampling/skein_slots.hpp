// Slots of Skeinformer: which rows are pilots, which columns are sampled, and the numbers per
// example that follow from it.
//
// Notation: B batch, H heads, N queries and keys, S slots, D head width. Arrays of slots have a
// fixed size; a slot that an example does not use holds -1. How many it uses is decided on the
// device, so no shape depends on data and nothing is read back.
#pragma once

#include <cstdint>

#include "attention/method.hpp"
#include "tensor/core/tensor.hpp"
#include "tensor/random/random.hpp"

namespace skytape::attention {

/// The number of slots that an example with m tokens uses: min(features, m - 1), at least 1 and at
/// most m.
/// Unless per_example, m in the first place is the smallest one of the full batch (the papers'
/// code): call.fewest_tokens or, without it, the smallest one in the mask.
struct FeatureLimit {
  std::int64_t features = 128;
  bool per_example = false;
};
/// Slots in use: i32[B] from mask [B, N].
[[nodiscard]] Tensor slots_in_use(const FeatureLimit& limit, const Tensor& mask, const Call& call);

/// Pilot rows floor(m u_j), one uniform u_j a slot for the whole batch: i32[B, S], with repetition.
/// used: i32[B].
[[nodiscard]] Tensor draw_pilots(const Tensor& mask, const Tensor& used, std::int64_t slots,
                                 const Random& random);

/// Weights of the columns, up to a factor per head (Skeinformer, sec. 4.1):
///   w_i = sqrt(sum_j B_ji^2) |v_i|   for real tokens, B_j = softmax(scale q_j K^T) of pilot j;
/// never below the smallest positive number there, so real tokens are drawn first. Zero for
/// padding. rows [B, H, S, D]: the pilots' queries, lse [B, H, S]: the log of their softmax's row
/// sums, k, v: [B, H, N, D], mask: [B, N], pilots: i32[B, S] -> [B, H, N].
[[nodiscard]] Tensor column_weights(const Tensor& rows, const Tensor& lse, const Tensor& k,
                                    const Tensor& v, const Tensor& mask, const Tensor& pilots,
                                    double scale);

/// Marks slots as unused beyond each example's number: columns i32[B, H, S], used: i32[B].
[[nodiscard]] Tensor limit_slots(const Tensor& columns, const Tensor& used);

/// weights [..., n] divided by their row's sum; a row of zeros stays.
[[nodiscard]] Tensor normalise(const Tensor& weights);

struct PilotSlots {
  Tensor index;     // i32[B, S], 0 where unused
  Tensor first;     // [B, S]: 1 for the first slot of each distinct row, else 0
  Tensor gradient;  // [B, S]: `first`, or 1 for every slot in use
  Tensor others;    // [B, N]: 0 for pilot rows, else 1
};
/// pilots: i32[B, S] of rows in [0, N) or -1; mask gives N, dtype and device.
[[nodiscard]] PilotSlots pilot_slots(const Tensor& pilots, const Tensor& mask, bool count_repeats);

struct ColumnSlots {
  Tensor index;          // i32[B, H, S], 0 where unused
  Tensor used;           // [B, S]: 1 for slots in use (by head 0: heads agree), else 0
  Tensor inverse_count;  // [B]: 1 / d, d slots in use; 0 for none
  Tensor inverse_rest;   // [B]: 1 / (m - d); 0 if no token is left
  Tensor weights;        // [B, S + 1]: `used`, then m - d
};
/// columns: i32[B, H, S] of columns in [0, N) or -1, mask: [B, N].
[[nodiscard]] ColumnSlots column_slots(const Tensor& columns, const Tensor& mask);

/// 1 / (d p_c) for the sampled columns c: [B, H, S]; 0 where unused or never drawn.
/// prob: [B, H, N], n: N.
[[nodiscard]] Tensor importance(const ColumnSlots& slots, const Tensor& prob, std::int64_t n);

/// exp(a - b), 0 where a is -inf. Same shapes.
[[nodiscard]] Tensor exp_difference(const Tensor& a, const Tensor& b);

// The two builds of the kernels behind these (skein_slots.kernel.cpp); tokens: [B] = m.

struct PilotPlan {
  std::uint64_t key = 0;
  const std::int32_t* step = nullptr;  // on the tensors' device; null: step 0
};

/// fewest: on the tensors' device; null: the smallest of `tokens`.
void slots_in_use_on(Cpu, const FeatureLimit& limit, const std::int32_t* fewest,
                     const Tensor& tokens, Tensor& used);
void slots_in_use_on(Cuda, const FeatureLimit& limit, const std::int32_t* fewest,
                     const Tensor& tokens, Tensor& used);
void draw_pilots_on(Cpu, const PilotPlan& plan, const Tensor& tokens, const Tensor& used,
                    Tensor& pilots);
void draw_pilots_on(Cuda, const PilotPlan& plan, const Tensor& tokens, const Tensor& used,
                    Tensor& pilots);
/// scores: [B, H, N, S] = K Q_J^T, lse: [B, H, S] of the scaled scores.
void column_weights_on(Cpu, const Tensor& scores, const Tensor& lse, const Tensor& pilots,
                       const Tensor& v, const Tensor& mask, double scale, Tensor& weights);
void column_weights_on(Cuda, const Tensor& scores, const Tensor& lse, const Tensor& pilots,
                       const Tensor& v, const Tensor& mask, double scale, Tensor& weights);
void limit_slots_on(Cpu, const Tensor& columns, const Tensor& used, Tensor& limited);
void limit_slots_on(Cuda, const Tensor& columns, const Tensor& used, Tensor& limited);
void normalise_on(Cpu, const Tensor& weights, Tensor& prob);
void normalise_on(Cuda, const Tensor& weights, Tensor& prob);
void pilot_slots_on(Cpu, const Tensor& pilots, bool count_repeats, PilotSlots& slots);
void pilot_slots_on(Cuda, const Tensor& pilots, bool count_repeats, PilotSlots& slots);
void column_slots_on(Cpu, const Tensor& columns, const Tensor& tokens, ColumnSlots& slots);
void column_slots_on(Cuda, const Tensor& columns, const Tensor& tokens, ColumnSlots& slots);
void importance_on(Cpu, const ColumnSlots& slots, const Tensor& prob, Tensor& factors);
void importance_on(Cuda, const ColumnSlots& slots, const Tensor& prob, Tensor& factors);
void exp_difference_on(Cpu, const Tensor& a, const Tensor& b, Tensor& y);
void exp_difference_on(Cuda, const Tensor& a, const Tensor& b, Tensor& y);

}  // namespace skytape::attention
