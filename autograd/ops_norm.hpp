// Layer norm and what stands beside or behind it, in fewer kernels on CUDA.
#pragma once

#include <vector>

#include "autograd/tape.hpp"
#include "tensor/norm/norm_pool.hpp"

namespace skytape {

/// y = layer_norm(x) for one or two readers, and x for a residual connection past them.
struct NormBeside {
  Var x;
  std::vector<Var> y;  // the same value for each reader
};
/// On CUDA, where x passes through memory anyway, the gradients of all meet in the norm's backward;
/// elsewhere the tape adds them.
[[nodiscard]] NormBeside layer_norm_beside(Var x, Var weight, Var bias, int readers);
/// The op itself, on either device.
[[nodiscard]] NormBeside layer_norm_beside_at_once(Var x, Var weight, Var bias, int readers);

/// The weighted sum of a sequence's normed tokens, [B, E] (tensor/norm/norm_pool.hpp), on either device.
[[nodiscard]] Var norm_pool(Var x, Var weight, Var bias, const Tensor& mask,
                            const tensor::TokenWeights& rule);

}  // namespace skytape
