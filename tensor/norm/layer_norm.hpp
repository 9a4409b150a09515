// Layer norm over the last axis (Ba et al. 2016).
#pragma once

#include "tensor/core/tensor.hpp"

namespace skytape::tensor {

inline constexpr double kLayerNormEpsilon = 1e-5;  // PyTorch's default, as in the papers' code

/// y = (x - mean) * inv_std * weight + bias; x: [..., E], weight, bias: [E]; mean, inv_std: [...].
struct LayerNormForward {
  Tensor y, mean, inv_std;
};
[[nodiscard]] LayerNormForward layer_norm(const Tensor& x, const Tensor& weight,
                                          const Tensor& bias);

struct LayerNormBackward {
  Tensor dx, dweight, dbias;  // [..., E], [E], [E]
};
[[nodiscard]] LayerNormBackward layer_norm_backward(const Tensor& x, const Tensor& weight,
                                                    const Tensor& mean, const Tensor& inv_std,
                                                    const Tensor& dy);
/// The same where y went to two places and x, beside the norm, to a third: from both gradients of y,
/// and with that of x added to dx. Either of the last two may be undefined.
[[nodiscard]] LayerNormBackward layer_norm_backward(const Tensor& x, const Tensor& weight,
                                                    const Tensor& mean, const Tensor& inv_std,
                                                    const Tensor& dy, const Tensor& also,
                                                    const Tensor& residual);

}  // namespace skytape::tensor
