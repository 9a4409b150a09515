// CPU and CUDA builds of the kernels behind skein_slots.cpp; shapes as there, tokens: [B] = m.
#pragma once

#include "attention/sampling/skein_slots.hpp"
#include "tensor/core/device.hpp"

namespace skytape::attention {

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
