// The MLP of a pre-norm encoder layer as one op, where that is one kernel each way.
#pragma once

#include "nn/layers/layers.hpp"
#include "tensor/mlp/mlp.hpp"

namespace skytape::nn {

/// x + drop2(out(drop1(gelu(in(norm(x)))))): x [B, N, E], in [F, E], out [E, F]. Recorded as one op
/// "mlp" where tensor::mlp_is_one_kernel; elsewhere, and on the CPU always, as an op for each step,
/// which saves what backward reads.
[[nodiscard]] Var mlp_block(Var x, const LayerNorm& norm, const Linear& in, const Linear& out,
                            const Dropout& hidden, const Dropout& output);

/// The operands of that op on a tape.
struct MlpVars {
  Var x;                       // [B, N, E]
  Var norm_weight, norm_bias;  // [E]
  Var in_weight, in_bias;      // [F, E], [F]
  Var out_weight, out_bias;    // [E, F], [E]
};
/// The op itself, on either device, at any precision.
[[nodiscard]] Var fused_mlp(const MlpVars& v, double norm_factor, const Dropout& hidden,
                            const Dropout& output);

}  // namespace skytape::nn
