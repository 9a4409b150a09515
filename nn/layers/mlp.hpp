// The MLP of an encoder layer as one op.
#pragma once

#include "nn/layers/layers.hpp"
#include "tensor/mlp/mlp.hpp"

namespace skytape::nn {

/// The operands of the op on a tape.
struct MlpVars {
  Var x;                       // [B, N, E]
  Var norm_weight, norm_bias;  // [E]; undefined: the layer norms what comes out
  Var in_weight, in_bias;      // [F, E], [F]
  Var out_weight, out_bias;    // [E, F], [E]
};

/// Returns x + drop2(out(drop1(gelu(in(h))))) with h = norm(norm_factor x), or h = x without a
/// norm: [B, N, E].
[[nodiscard]] Var mlp(const MlpVars& v, double norm_factor, const Dropout& hidden,
                      const Dropout& output);
/// Returns the MLP of x by the parameters of three layers: norm over E, in [F, E], out [E, F].
[[nodiscard]] Var mlp(Var x, const LayerNorm& norm, const Linear& in, const Linear& out,
                      const Dropout& hidden, const Dropout& output);
/// Returns the MLP of x by the parameters of two layers, h = x.
[[nodiscard]] Var mlp(Var x, const Linear& in, const Linear& out, const Dropout& hidden,
                      const Dropout& output);

}  // namespace skytape::nn
