// CPU half of maxima down columns.
#include <algorithm>

#include "tensor/core/tensor.hpp"
#include "tensor/kernels/reduce_plan.hpp"
#include "tensor/launch/launch.hpp"

namespace skytape::tensor {

void max_of_columns_on(Cpu, const AxisView& view, const Tensor& x, Tensor& y, Tensor& position) {
  constexpr std::int64_t kStripe = 64;  // columns that a thread takes down all rows
  const std::int64_t stripes = ceil_div(view.inner, kStripe);
  dispatch_float(x.dtype(), [&]<class T>() {
    cpu::rows(view.outer * stripes, view.n * kStripe,
              [&](std::int64_t task, const cpu::Team& team) {
                const std::int64_t o = task / stripes, left = task % stripes * kStripe;
                const std::int64_t width = std::min(kStripe, view.inner - left);
                T* const best = y.data<T>() + o * view.inner + left;
                std::int32_t* const at = position.data<std::int32_t>() + o * view.inner + left;
                const T* const from = x.data<T>() + o * view.n * view.inner + left;
                team.each(width, [=](std::int64_t j) {
                  best[j] = from[j];
                  at[j] = 0;
                });
                for (std::int64_t i = 1; i < view.n; ++i) {
                  const T* const entry = from + i * view.inner;
                  team.each(width, [=](std::int64_t j) {
                    const T old = best[j], candidate = entry[j];
                    const bool better = max_key(candidate) > max_key(old);
                    best[j] = better ? candidate : old;
                    at[j] = better ? static_cast<std::int32_t>(i) : at[j];
                  });
                }
              });
  });
}

}  // namespace skytape::tensor
