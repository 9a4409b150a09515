// What the kernels of token_products.cu are given, CUDA only: a layer's projections where 16 tokens
// belong to a warp.
#pragma once

#include <cstdint>
#include <span>

#include "tensor/projection/heads_plan.hpp"
#include "tensor/tokens/row_dropout.hpp"

namespace skytape::tensor {

/// Sizes, and the dropout of rows [B N, E].
struct TokenPlan {
  HeadsPlan heads;
  RowDropout dropout;
};

/// Whether x [B, N, E], and H heads of width D, fit: f32 on CUDA, products at bf16, at least one token,
/// E and D even, E and H D at most 64.
[[nodiscard]] bool fits_token_products(const Tensor& x, std::int64_t heads, std::int64_t d);

void merge_heads_on(Cuda, const TokenPlan& plan, const Tensor& x, const Tensor& a,
                    const Tensor& weight, const Tensor& bias, Tensor& y);
/// dparams: dW [E, H D], then db [E].
void merge_heads_backward_on(Cuda, const TokenPlan& plan, const Tensor& dy, const Tensor& a,
                             const Tensor& weight, Tensor& da, Tensor& dparams);
/// dx [B N, E] from the projections' gradients dy, P of [B, H, N, D] or undefined: zero; weights: P of
/// [H D, E]; dparams: dW [P, H D, E], then db [P, H D].
void project_heads_backward_on(Cuda, const TokenPlan& plan, const Tensor& x,
                               std::span<const Tensor> weights, std::span<const Tensor> dy,
                               Tensor& dx, Tensor& dparams);

}  // namespace skytape::tensor
