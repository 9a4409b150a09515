#include "attention/linear/ratio.hpp"

#include "tensor/core/on_device.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/movement/layout.hpp"

namespace skytape::attention {

Tensor ratio(const Tensor& x) {
  ENSURE(x.rank() == 4 && x.size(3) >= 1, "ratio: expected x [B, H, N, D + 1], got ", x);
  Tensor out = empty_like(x, x.shape().with(3, x.size(3) - 1));
  on_device(x.device(), [&](auto tag) { ratio_on(tag, x, out); });
  return out;
}

Tensor ratio_backward(const Tensor& x, const Tensor& out, const Tensor& dout) {
  require_same_kind("ratio_backward", {&x, &out, &dout});
  ENSURE(out.shape() == dout.shape() && x.shape() == out.shape().with(3, out.size(3) + 1),
         "ratio_backward: expected x [B, H, N, D + 1], out and dout [B, H, N, D], got ", x, ", ",
         out, ", ", dout);
  Tensor dx = empty_like(x);  // [B, H, N, D + 1]
  on_device(x.device(), [&](auto tag) { ratio_backward_on(tag, x, out, dout, dx); });
  return dx;
}

Tensor with_mask_column(const Tensor& v, const Tensor& mask) {
  const Shape column = v.shape().with(3, 1);  // [B, H, N, 1]
  const Tensor real = mask.reshape({mask.size(0), 1, mask.size(1), 1});
  return tensor::concat({tensor::mask_rows(v, mask), tensor::expand(real, column)}, 3);
}

}  // namespace skytape::attention
