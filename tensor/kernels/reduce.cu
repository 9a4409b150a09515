// CUDA half of maxima down columns.
#include <algorithm>

#include "tensor/core/tensor.hpp"
#include "tensor/kernels/reduce_plan.hpp"
#include "tensor/launch/launch.hpp"

namespace skytape::tensor {
namespace {

constexpr int kMostGroups = 32;        // rows that a block reads at a time
constexpr std::int64_t kRowsEach = 8;  // of a group, at least

/// One block per 32 columns: a thread finds the first of the largest entries in its group of rows,
/// then the groups are compared.
template <class T> struct MaxColumns {
  const T* x;              // [outer, n, inner]
  T* y;                    // [outer, inner]
  std::int32_t* position;  // [outer, inner]
  AxisView view;
};
template <class T> struct Best {
  T value[kMostGroups][cuda::kWarp];
  std::int32_t at[kMostGroups][cuda::kWarp];
};

template <class T> __global__ void max_columns_kernel(MaxColumns<T> in) {
  auto& best = cuda::shared<Best<T>>();
  const std::int64_t inner = in.view.inner, stripes = ceil_div(inner, cuda::kWarp);
  const int lane = threadIdx.x, group = threadIdx.y;
  const int groups = static_cast<int>(math::min<std::int64_t>(blockDim.y, in.view.n));
  for (std::int64_t task = blockIdx.x; task < in.view.outer * stripes; task += gridDim.x) {
    const std::int64_t j = task % stripes * cuda::kWarp + lane, o = task / stripes;
    const bool mine = j < inner;
    const T* const column = in.x + o * in.view.n * inner + j;
    if (mine && group < groups) {
      T value = column[group * inner];
      std::int64_t at = group;
#pragma unroll 4
      for (std::int64_t i = group + groups; i < in.view.n; i += groups) {
        const T candidate = column[i * inner];
        const bool better = max_key(candidate) > max_key(value);
        value = better ? candidate : value;
        at = better ? i : at;
      }
      best.value[group][lane] = value;
      best.at[group][lane] = static_cast<std::int32_t>(at);
    }
    __syncthreads();
    if (mine && group == 0) {
      T value = best.value[0][lane];
      std::int32_t at = best.at[0][lane];
      for (int g = 1; g < groups; ++g) {
        const T candidate = best.value[g][lane];
        const std::int32_t where = best.at[g][lane];
        const T key = max_key(candidate), old = max_key(value);
        const bool better = key > old || (key == old && where < at);
        value = better ? candidate : value;
        at = better ? where : at;
      }
      in.y[o * inner + j] = value;
      in.position[o * inner + j] = at;
    }
    __syncthreads();  // the next task reuses `best`
  }
}

}  // namespace

void max_of_columns_on(Cuda, const AxisView& view, const Tensor& x, Tensor& y, Tensor& position) {
  const std::int64_t tasks = view.outer * ceil_div(view.inner, cuda::kWarp);
  if (tasks == 0) return;
  const auto groups =
      static_cast<unsigned>(std::clamp<std::int64_t>(view.n / kRowsEach, 1, kMostGroups));
  dispatch_float(x.dtype(), [&]<class T>() {
    cuda::launch({"max of columns", cuda::grid_for(tasks, 1), dim3(cuda::kWarp, groups)},
                 max_columns_kernel<T>,
                 MaxColumns<T>{x.data<T>(), y.data<T>(), position.data<std::int32_t>(), view});
  });
}

}  // namespace skytape::tensor
