#include "nn/pyramid/unfold.hpp"

#include "tensor/core/on_device.hpp"

namespace skytape::nn {

// Every entry of y is an entry of x or 0, so dx adds up dy over the windows that hold a place.
Var unfold(Var x, const Windows& windows) {
  const Tensor xv = x.value();
  tensor::require_float("unfold", xv);
  ENSURE(windows.side >= 1 && windows.side % 2 == 1 && windows.stride >= 1,
         "unfold: expected an odd side and a stride of at least 1, got ", windows.side, " and ",
         windows.stride);
  ENSURE(xv.rank() == 3 && windows.columns >= 1 && xv.size(1) % windows.columns == 0,
         "unfold: expected x [B, N, E] with rows of ", windows.columns, " places, got ", xv);
  const std::int64_t rows = xv.size(1) / windows.columns;
  const UnfoldPlan plan{
      rows,       windows.columns, windows.along(rows), windows.along(windows.columns),
      xv.size(2), windows.side,    windows.stride};
  Tensor y = empty_like(xv, {xv.size(0), plan.out_rows * plan.out_columns,
                             plan.side * plan.side * plan.width});  // [B, M, side² E]
  on_device(xv.device(), [&](auto tag) { unfold_on(tag, plan, xv, y); });
  return record("unfold", {x}, y, [plan, xv](const Tensor& dy, Grads& g) {
    Tensor dx = empty_like(xv);  // [B, N, E]
    on_device(dy.device(), [&](auto tag) { fold_on(tag, plan, dy, dx); });
    g.add(0, dx);
  });
}

}  // namespace skytape::nn
