// The arguments of the kernels of token_products.cu, CUDA only: a layer's projections where 16
// tokens belong to a warp.
#pragma once

#include <cstdint>
#include <span>

#include "tensor/core/tensor.hpp"
#include "tensor/projection/heads_plan.hpp"
#include "tensor/tokens/row_dropout.hpp"

namespace skytape::tensor {

/// Sizes, and the dropout of rows [B N, E].
struct TokenPlan {
  HeadsPlan heads;
  RowDropout dropout;
  std::uint32_t inverse_d = 0;  // 2^16 / D, rounded up: division of columns below 64 by D

  explicit TokenPlan(const HeadsPlan& sizes, const RowDropout& of_rows = {})
      : heads(sizes),
        dropout(of_rows),
        inverse_d(static_cast<std::uint32_t>(ceil_div(std::int64_t{1} << 16, sizes.d))) {}

  /// HeadsPlan::place_in_part of a column of H D.
  HD int place_of_column(int column) const {
    const auto h = static_cast<int>((static_cast<std::uint32_t>(column) * inverse_d) >> 16);
    return column + h * static_cast<int>((heads.n - 1) * heads.d);
  }
};

/// Returns whether x [B, N, E], and H heads of width D, fit: f32 on CUDA, products at bf16, 1 to
/// 2^25 - 1 tokens, E and D multiples of 4, E and H D at most 64.
[[nodiscard]] bool fits_token_products(const Tensor& x, std::int64_t heads, std::int64_t d);

/// Returns whether wide projections fit: E and H D multiples of 64, D of 16; else as above.
[[nodiscard]] bool fits_wide_products(const Tensor& x, std::int64_t heads, std::int64_t d);

/// y [P, B, H, N, D]; weights and biases as project_heads has them.
void project_tokens_on(Cuda, const TokenPlan& plan, const Tensor& x,
                       std::span<const Tensor> weights, std::span<const Tensor> biases, Tensor& y);
void project_wide_on(Cuda, const HeadsPlan& plan, const Tensor& x, std::span<const Tensor> weights,
                     std::span<const Tensor> biases, Tensor& y);
void merge_heads_on(Cuda, const TokenPlan& plan, const Tensor& x, const Tensor& a,
                    const Tensor& weight, const Tensor& bias, Tensor& y);
/// dparams: dW [E, H D], then db [E].
void merge_heads_backward_on(Cuda, const TokenPlan& plan, const Tensor& dy, const Tensor& a,
                             const Tensor& weight, Tensor& da, Tensor& dparams);
/// Returns whether blocks of this device have the shared memory of the kernel below.
[[nodiscard]] bool project_heads_backward_has_room_on(Cuda);
/// dx [B N, E] from the projections' gradients dy, P of [B, H, N, D] or undefined: zero; weights: P
/// of [H D, E]; dparams: dW [P, H D, E], then db [P, H D].
void project_heads_backward_on(Cuda, const TokenPlan& plan, const Tensor& x,
                               std::span<const Tensor> weights, std::span<const Tensor> dy,
                               Tensor& dx, Tensor& dparams);

}  // namespace skytape::tensor
