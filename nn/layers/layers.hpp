// Layers: parameters and the one line that applies them.
#pragma once

#include <string>

#include "autograd/parameter.hpp"
#include "autograd/tape.hpp"
#include "tensor/norm/layer_norm.hpp"

namespace skytape {
struct NormBeside;
}

namespace skytape::nn {

/// y = x Wᵀ + b. Initialised as PyTorch's Linear: weight and bias uniform in ±1/√in, times `scale`.
struct Linear {
  Parameter* weight;  // [out, in]
  Parameter* bias;    // [out]

  Linear(ParameterStore& store, const std::string& name, std::int64_t in, std::int64_t out,
         double scale = 1);
  [[nodiscard]] Var operator()(Var x) const;  ///< [..., in] -> [..., out]
};

/// Layer norm over the last axis; weight 1, bias 0 at the start. The operation's epsilon is fixed,
/// but a factor before it does what another one would: norm_ε(c x) = norm_{ε / c²}(x).
struct LayerNorm {
  Parameter* weight;  // [E]
  Parameter* bias;    // [E]
  double factor;      // c

  LayerNorm(ParameterStore& store, const std::string& name, std::int64_t width,
            double epsilon = tensor::kLayerNormEpsilon);
  [[nodiscard]] Var operator()(Var x) const;
  /// The same for one or two readers, and x for a residual connection past them.
  [[nodiscard]] NormBeside beside(Var x, int readers) const;
};

}  // namespace skytape::nn
