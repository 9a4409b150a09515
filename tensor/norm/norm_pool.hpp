// Layer norm, and of what it gives the weighted sum over a sequence's tokens: what stands between a
// model's last layer and its classifier.
//
//   pooled_b = Σ_n w_bn (h_bn weight + bias)     h = (x - mean) / std, row by row
//   w_bn = mask_bn / divisor, mask_bn / max(1, Σ_n mask_bn), or mask_b0 for n = 0 and else 0
//
// Notation: B batch, N tokens, E width.
#pragma once

#include "tensor/core/tensor.hpp"

namespace skytape::tensor {

/// The choice among these weights.
struct TokenWeights {
  enum class Kind { nominal, mean, first } kind = Kind::nominal;
  double divisor = 1;  // of nominal
};

struct NormPool {
  Tensor pooled;         // [B, E]
  Tensor mean, inv_std;  // [B, N]; defined where w is not 0
  Tensor sums;           // [B, E + 2]: Σ_n m h and Σ_n m of the weights' n, m the mask; w / m
};
/// Pools x [B, N, E] with N > 0, weight and bias [E], mask [B, N]. On CUDA, where
/// is_one_pass(x), it is one kernel each way, or two for sequences of more than 256 tokens;
/// elsewhere it is as many operations as the definition has.
[[nodiscard]] NormPool norm_pool(const Tensor& x, const Tensor& weight, const Tensor& bias,
                                 const Tensor& mask, const TokenWeights& rule);

struct NormPoolBackward {
  Tensor dx, dweight, dbias;  // [B, N, E], [E], [E]
};
/// From what norm_pool() left and dpooled [B, E].
[[nodiscard]] NormPoolBackward norm_pool_backward(const Tensor& x, const Tensor& weight,
                                                  const Tensor& mask, const TokenWeights& rule,
                                                  const NormPool& saved, const Tensor& dpooled);

// The CUDA half (norm_pool.cu).

void norm_pool_on(Cuda, const Tensor& x, const Tensor& weight, const Tensor& bias,
                  const Tensor& mask, const TokenWeights& rule, NormPool& out);
/// `dparams` [2, E]: dweight, dbias.
void norm_pool_backward_on(Cuda, const Tensor& x, const Tensor& weight, const Tensor& mask,
                           const TokenWeights& rule, const NormPool& saved, const Tensor& dpooled,
                           Tensor& dx, Tensor& dparams);

}  // namespace skytape::tensor
