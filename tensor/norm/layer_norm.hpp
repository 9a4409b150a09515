// Layer norm over the last axis (Ba et al. 2016).
#pragma once

#include "tensor/core/tensor.hpp"

namespace skytape::tensor {

inline constexpr double kLayerNormEpsilon = 1e-5;  // PyTorch's default, as in the papers' code

/// CUDA: whether one pass norms rows of x, which a warp keeps in its registers: f32 up to 1,024
/// wide, f64 up to 512.
[[nodiscard]] bool is_one_pass(const Tensor& x);

/// y = (x - mean) * inv_std * weight + bias; x: [..., E], weight, bias: [E]; mean, inv_std: [...].
struct LayerNormForward {
  Tensor y, mean, inv_std;
};
[[nodiscard]] LayerNormForward layer_norm(const Tensor& x, const Tensor& weight,
                                          const Tensor& bias);
/// Returns the same with y as `type_of_y`: x's own type, or bf16 of f32 where products alone read y
/// (gemm/operand.hpp).
[[nodiscard]] LayerNormForward layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias,
                                          DType type_of_y);

struct LayerNormBackward {
  Tensor dx, dweight, dbias;  // [..., E], [E], [E]
};
/// Returns the gradients. If y has two uses, `also` is its other gradient; if x has a use besides
/// the norm, `residual` is its gradient from there, which is added to dx.
[[nodiscard]] LayerNormBackward layer_norm_backward(const Tensor& x, const Tensor& weight,
                                                    const Tensor& mean, const Tensor& inv_std,
                                                    const Tensor& dy, const Tensor& also = {},
                                                    const Tensor& residual = {});

// The kernels behind these: a backend pair for any width, and two of CUDA alone where is_one_pass()
// (layer_norm.cu).

void layer_norm_on(Cpu, const Tensor& x, const Tensor& weight, const Tensor& bias,
                   LayerNormForward& f);
void layer_norm_on(Cuda, const Tensor& x, const Tensor& weight, const Tensor& bias,
                   LayerNormForward& f);
void layer_norm_backward_on(Cpu, const Tensor& x, const Tensor& weight, const Tensor& mean,
                            const Tensor& inv_std, const Tensor& dy, Tensor& dx, Tensor& dparams);
void layer_norm_backward_on(Cuda, const Tensor& x, const Tensor& weight, const Tensor& mean,
                            const Tensor& inv_std, const Tensor& dy, Tensor& dx, Tensor& dparams);
/// CUDA: with one pass over what they read; false where rows are too wide for that, and nothing is
/// done (norm/layer_norm.cu).
bool fused_layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias,
                      LayerNormForward& f);
bool fused_layer_norm_backward(const Tensor& x, const Tensor& weight, const Tensor& mean,
                               const Tensor& inv_std, const Tensor& dy, const Tensor& also,
                               const Tensor& residual, Tensor& dx, Tensor& dparams);

}  // namespace skytape::tensor
