#include "tensor/norm/layer_norm.hpp"

#include <cstddef>
#include <type_traits>

#include "tensor/core/on_device.hpp"
#include "tensor/kernels/elementwise.hpp"

namespace skytape::tensor {
namespace {

/// x: [..., E] of floats with E > 0.
void require_rows(const char* op, const Tensor& x) {
  require_float(op, x);
  ENSURE(x.rank() > 0 && x.size(-1) > 0, op,
         ": expected an f32 or f64 tensor [..., E] with E > 0, got ", x);
}

}  // namespace

bool is_one_pass(const Tensor& x) {
  constexpr std::size_t kBytes = 4096;
  return static_cast<std::size_t>(x.cols()) * size_of(x.dtype()) <= kBytes;
}

LayerNormForward layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return layer_norm(x, weight, bias, x.dtype());
}

LayerNormForward layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias,
                            DType type_of_y) {
  require_rows("layer_norm", x);
  require_same_kind("layer_norm", {&x, &weight, &bias});
  const Shape width{x.size(-1)};
  ENSURE(weight.shape() == width && bias.shape() == width, "layer_norm: expected weight and bias ",
         width, " for x ", x, ", got ", weight, " and ", bias);
  const Shape per_row = x.shape().without(-1);
  LayerNormForward f{Tensor::empty(x.shape(), type_of_y, x.device()),  // [..., E]
                     empty_like(x, per_row),                           // [...]
                     empty_like(x, per_row)};                          // [...]
  on_device(x.device(), [&](auto tag) {
    if constexpr (std::is_same_v<decltype(tag), Cuda>) {
      if (fused_layer_norm(x, weight, bias, f)) return;
    }
    layer_norm_on(tag, x, weight, bias, f);
  });
  return f;
}

LayerNormBackward layer_norm_backward(const Tensor& x, const Tensor& weight, const Tensor& mean,
                                      const Tensor& inv_std, const Tensor& dy, const Tensor& also,
                                      const Tensor& residual) {
  require_rows("layer_norm_backward", x);
  require_same_kind("layer_norm_backward", {&x, &weight, &mean, &inv_std, &dy});
  const Shape per_row = x.shape().without(-1);
  ENSURE(dy.shape() == x.shape() && weight.shape() == Shape{x.size(-1)} &&
             mean.shape() == per_row && inv_std.shape() == per_row,
         "layer_norm_backward: expected dy [..., E], weight [E], mean and inv_std [...] for x ", x,
         ", got ", dy, ", ", weight, ", ", mean, ", ", inv_std);
  for (const Tensor* const more : {&also, &residual}) {
    if (!more->defined()) continue;
    require_same_kind("layer_norm_backward", {&x, more});
    ENSURE(more->shape() == x.shape(), "layer_norm_backward: expected gradients of the shape of x ",
           x, ", got ", *more);
  }
  Tensor dx = empty_like(x);                        // [..., E]
  Tensor dparams = empty_like(x, {2, x.size(-1)});  // dweight, dbias
  on_device(x.device(), [&](auto tag) {
    if constexpr (std::is_same_v<decltype(tag), Cuda>) {
      if (fused_layer_norm_backward(x, weight, mean, inv_std, dy, also, residual, dx, dparams)) {
        return;
      }
    }
    const Tensor sum = also.defined() ? add(dy, also) : dy;
    layer_norm_backward_on(tag, x, weight, mean, inv_std, sum, dx, dparams);
    if (residual.defined()) dx = add(residual, dx);
  });
  return {dx, dparams[0], dparams[1]};
}

}  // namespace skytape::tensor
