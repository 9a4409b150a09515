// CPU and CUDA builds of the kernels behind lsh.cpp.
#pragma once

#include "attention/selection/lsh.hpp"
#include "tensor/core/device.hpp"

namespace skytape::attention {

inline constexpr int kMaxRounds = 64;

/// Parts of a bucket's number: one or two factors, each even.
struct BucketFactors {
  std::int64_t first = 0, second = 0;  // second 0: only one
};

void unit_keys_on(Cpu, const Tensor& x, Tensor& k);
void unit_keys_on(Cuda, const Tensor& x, Tensor& k);
void unit_keys_backward_on(Cpu, const Tensor& x, const Tensor& dk, Tensor& dx);
void unit_keys_backward_on(Cuda, const Tensor& x, const Tensor& dk, Tensor& dx);
/// rotated: [B, H, N, R * W], negative: [B, H, R, N].
void negative_buckets_on(Cpu, const BucketFactors& factors, const Tensor& rotated,
                         const Tensor& mask, Tensor& negative);
void negative_buckets_on(Cuda, const BucketFactors& factors, const Tensor& rotated,
                         const Tensor& mask, Tensor& negative);
/// order: i32[B, H, R, N] tokens by rank; token is -1 everywhere at the start.
void place_slots_on(Cpu, const Tensor& order, std::int64_t slots_per_round, SortedSlots& slots);
void place_slots_on(Cuda, const Tensor& order, std::int64_t slots_per_round, SortedSlots& slots);
void combine_rounds_on(Cpu, const Tensor& out, const Tensor& lse, const Tensor& slot, Tensor& y);
void combine_rounds_on(Cuda, const Tensor& out, const Tensor& lse, const Tensor& slot, Tensor& y);
void combine_rounds_backward_on(Cpu, const Tensor& out, const Tensor& lse, const Tensor& slot,
                                const Tensor& dy, RoundGradients& g);
void combine_rounds_backward_on(Cuda, const Tensor& out, const Tensor& lse, const Tensor& slot,
                                const Tensor& dy, RoundGradients& g);

}  // namespace skytape::attention
