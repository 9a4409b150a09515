// A layer's exact attention with the projections around it as one operation, for wide models at
// bf16 on a GPU: what lies between its products and its tiles is in bf16, as both read it.
//
//   y = residual + drop(merge(attend(x W_qᵀ + b_q, x W_kᵀ + b_k, x W_vᵀ + b_v)) Wᵀ + b)
//
// Notation: B batch, N tokens, E model width, H heads, D head width.
#pragma once

#include <array>
#include <span>

#include "attention/tiled/tiled_plan.hpp"
#include "attention/tiled_options.hpp"
#include "autograd/tape.hpp"
#include "tensor/random/dropout.hpp"

namespace skytape::attention {

/// The parameters of a layer's projections.
struct LayerVars {
  std::array<Var, 3> in;         // of queries, keys and values: [H D, E]
  std::array<Var, 3> in_biases;  // [H D]
  Var out, out_bias;             // [E, H D], [E]
};

/// Returns whether tiled_layer serves attention on x [B, N, E] with weights [H D, E] of H heads:
/// where their products' operands are of bf16 (gemm/operand.hpp), for softmax without a given keep,
/// heads up to 64 wide and a multiple of 4.
[[nodiscard]] bool serves_layer(const Tensor& x, const Tensor& weight, std::int64_t heads,
                                const TiledOptions& options);

/// Returns y [B, N, E] of residual [B, N, E], x [B, N, E] and mask [B, N]. Its bits are those of
/// project_heads, tiled attention and merge_heads. Throws unless serves_layer.
[[nodiscard]] Var tiled_layer(Var residual, Var x, const LayerVars& w, std::int64_t heads,
                              const Tensor& mask, const TiledOptions& options,
                              const Dropout& dropout);

/// The tensors of the tiles that backward reads.
struct SavedTiles {
  Tensor rows, entries;  // operands of q, k and v, and terms of keys (tile_operands.hpp)
  Tensor out;            // bf16 [B N, H D]
  Tensor lse;            // [B, H, N]
  Tensor kept;           // as TiledForward::kept
};

// CUDA only, at bf16. rows: f32 [B N, 3 H D], biases: three of [H D], mask: [B, N].
/// Fills `saved`, whose out, lse and kept are memory.
void tiled_layer_forward_on(Cuda, const TiledPlan& plan, const Tensor& rows,
                            std::span<const Tensor> biases, const Tensor& mask, SavedTiles& saved);
/// Fills drows, bf16 [B N, 3 H D], from dout, bf16 [B N, H D].
void tiled_layer_backward_on(Cuda, const TiledPlan& plan, const SavedTiles& saved,
                             const Tensor& mask, const Tensor& dout, Tensor& drows);

}  // namespace skytape::attention
