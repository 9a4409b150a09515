// Locality-sensitive hashing as Reformer uses it: buckets, sorting by bucket, and combining rounds.
//
// Notation: B batch, H heads, N tokens, D head width, R rounds of hashing, P slots of all rounds, W
// half the buckets of a round (with two factors, half their sum).
#pragma once

#include <cstdint>
#include <vector>

#include "tensor/core/tensor.hpp"

namespace skytape::attention {

/// Unit-length keys k = x rho / sqrt(D), rho = (mean(x^2) + 1e-6)^(-1/2). x: [..., D].
[[nodiscard]] Tensor unit_keys(const Tensor& x);
/// dx = (rho dk - x rho^3 mean(dk x)) / sqrt(D).
[[nodiscard]] Tensor unit_keys_backward(const Tensor& x, const Tensor& dk);

/// Minus the bucket of every token in every round: [B, H, R, N] in x's dtype. The bucket is the
/// position of the largest of [y, -y], y = x times the rotations; with two factors, that of their
/// first part plus `factors[0]` times that of the second. Padding gets the bucket after the last.
/// x: [B, H, N, D], rotations: [H, D, R, sum of factors / 2], mask: [B, N].
[[nodiscard]] Tensor negative_buckets(const Tensor& x, const Tensor& rotations, const Tensor& mask,
                                      const std::vector<std::int64_t>& factors);

/// Tokens sorted by bucket, round after round, and where each of them went.
struct SortedSlots {
  Tensor token;  // i32[B, H, P]: -1 in the slots that fill up a round
  Tensor slot;   // i32[B, H, R, N]
};
/// Stable sort within each round, `slots_per_round` >= N slots each. negative: [B, H, R, N].
[[nodiscard]] SortedSlots sort_slots(const Tensor& negative, std::int64_t slots_per_round);

/// The rounds of each token weighted by softmax over their log-sum-exps. out: [B, H, P, D], lse:
/// [B, H, P], slot: i32[B, H, R, N] -> [B, H, N, D].
[[nodiscard]] Tensor combine_rounds(const Tensor& out, const Tensor& lse, const Tensor& slot);

struct RoundGradients {
  Tensor dout;  // [B, H, P, D]
  Tensor dlse;  // [B, H, P]
};
/// dout_r = w_r G, dlse_r = w_r (G.out_r - sum_s w_s G.out_s); zeros in slots without a token.
[[nodiscard]] RoundGradients combine_rounds_backward(const Tensor& out, const Tensor& lse,
                                                     const Tensor& slot, const Tensor& dy);

// The two builds of the kernels behind these (lsh.kernel.cpp).

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
