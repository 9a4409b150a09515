// Layers: parameters and the one line that applies them.
//
// Letters: B batch, N positions, M combined rows, E model width, V vocabulary.
#pragma once

#include <string>

#include "autograd/ops.hpp"
#include "autograd/parameter.hpp"
#include "nn/layers/positions.hpp"

namespace skytape::nn {

/// y = x Wᵀ + b. Initialised as PyTorch's Linear: weight and bias uniform in ±1/√in.
struct Linear {
  Parameter* weight;  // [out, in]
  Parameter* bias;    // [out]

  Linear(ParameterStore& store, const std::string& name, std::int64_t in, std::int64_t out);
  [[nodiscard]] Var operator()(Var x) const;    ///< [..., in] -> [..., out]
  [[nodiscard]] Var without_bias(Var x) const;  ///< for callers that fuse the bias
  /// The layer's output with its rows combined by a matrix, from the combined rows of x,
  /// [..., M, in], and that matrix's row sums, [..., M, 1], which multiply the bias.
  [[nodiscard]] Var of_combined(Var rows, Var sums) const;
};

/// Layer norm over the last axis; weight 1, bias 0 at the start.
struct LayerNorm {
  Parameter* weight;  // [E]
  Parameter* bias;    // [E]

  LayerNorm(ParameterStore& store, const std::string& name, std::int64_t width);
  [[nodiscard]] Var operator()(Var x) const;
};

/// A trained vector of the token plus one of its position, or one of its distance to the last token,
/// or both; all start as N(0, 0.02²), as in the papers' code. The padding id 0 has an ordinary
/// trainable vector.
struct Embedding {
  Parameter* tokens;               // [V, E]
  Parameter* positions = nullptr;  // [nominal length, E]: trained or sinusoidal; nullptr: not added

  Parameter* from_end = nullptr;  // [nominal length, E], trained; nullptr: not added

  Embedding(ParameterStore& store, const std::string& name, std::int64_t vocabulary,
            std::int64_t nominal_length, std::int64_t width, Positions kind, bool both_ends);
  /// ids: i32[B, N], mask: [B, N] -> [B, N, E].
  [[nodiscard]] Var operator()(Tape& tape, const Tensor& ids, const Tensor& mask) const;
};

}  // namespace skytape::nn
