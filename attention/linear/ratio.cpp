#include "attention/linear/ratio.hpp"

#include "tensor/core/on_device.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/movement/layout.hpp"

namespace skytape::attention {

Ratio ratio(const Tensor& x) {
  ENSURE(x.rank() == 4 && x.size(3) >= 1, "ratio: expected x [B, H, N, D + 1], got ", x);
  Ratio r{empty_like(x, x.shape().with(3, x.size(3) - 1)), empty_like(x, x.shape().without(3))};
  on_device(x.device(), [&](auto tag) { ratio_on(tag, x, r); });
  return r;
}

Tensor ratio_backward(const Ratio& r, const Tensor& dout) {
  require_same_kind("ratio_backward", {&r.out, &r.normaliser, &dout});
  ENSURE(r.out.shape() == dout.shape() && r.normaliser.shape() == dout.shape().without(3),
         "ratio_backward: expected out and dout [B, H, N, D], normaliser [B, H, N], got ", r.out,
         ", ", dout, ", ", r.normaliser);
  Tensor dx = empty_like(dout, dout.shape().with(3, dout.size(3) + 1));  // [B, H, N, D + 1]
  on_device(dout.device(), [&](auto tag) { ratio_backward_on(tag, r, dout, dx); });
  return dx;
}

Tensor with_mask_column(const Tensor& v, const Tensor& mask) {
  const Shape column = v.shape().with(3, 1);  // [B, H, N, 1]
  const Tensor real = mask.reshape({mask.size(0), 1, mask.size(1), 1});
  return tensor::concat({tensor::mask_rows(v, mask), tensor::expand(real, column)}, 3);
}

}  // namespace skytape::attention
