// CUDA half of the embedding's backward. The owner computes: a warp owns some columns of a row of the
// table, looks through the list of ids for its row and adds what it finds, in order. No atomics, so
// sums repeat.
#include "tensor/movement/gather.hpp"

#include "tensor/launch/cuda.hpp"
#include "tensor/launch/launch.hpp"
#include "tensor/movement/gather_plan.hpp"

namespace skytape::tensor {
namespace {

constexpr int kPerLane = 4;                                   // columns that a lane adds up
constexpr std::int64_t kColumns = kPerLane * cuda::kWarp;     // columns of a warp
constexpr std::int64_t kMinSegment = 256;                     // picks of a warp, at least
constexpr std::int64_t kMaxPartials = std::int64_t{1} << 23;  // entries of the partial tables

/// One warp per (segment of the picks, group, target row, block of columns). Stores the sum of the
/// rows of y whose index is the target row.
template <class T> struct CollectRows {
  GatherPlan plan;
  const std::int32_t* index;  // [groups / sharing, picks]
  const T* y;                 // [groups, picks, width]
  T* target;                  // [segments, groups, rows, width]
  std::int64_t segment;       // picks per segment

  __device__ void operator()(std::int64_t task, const cuda::Warp& warp) const {
    const std::int64_t blocks = (plan.width + kColumns - 1) / kColumns;
    const std::int64_t first_column = task % blocks * kColumns + warp.lane;
    const std::int64_t target_row = task / blocks;  // over segments, groups and rows
    const std::int64_t row = target_row % plan.rows;
    const std::int64_t group = target_row / plan.rows % plan.groups;
    const std::int64_t begin = target_row / plan.rows / plan.groups * segment;
    const std::int64_t end = math::min(begin + segment, plan.picks);
    const std::int32_t* const picks = index + group / plan.sharing * plan.picks;  // [picks]
    const T* const rows = y + group * plan.picks * plan.width + first_column;
    T* const to = target + target_row * plan.width + first_column;
    T sum[kPerLane] = {};
    for (std::int64_t i = begin; i < end; i += cuda::kWarp) {
      const bool hit = i + warp.lane < end && picks[i + warp.lane] == row;
      for (unsigned hits = __ballot_sync(0xffffffffu, hit); hits != 0; hits &= hits - 1) {
        const T* const from = rows + (i + __ffs(static_cast<int>(hits)) - 1) * plan.width;
#pragma unroll
        for (int u = 0; u < kPerLane; ++u) {
          if (first_column + u * cuda::kWarp < plan.width) sum[u] += from[u * cuda::kWarp];
        }
      }
    }
#pragma unroll
    for (int u = 0; u < kPerLane; ++u) {
      if (first_column + u * cuda::kWarp < plan.width) to[u * cuda::kWarp] = sum[u];
    }
  }
};

/// out[e] = sum of partial[s, e] over s, in order.
template <class T> struct AddPartials {
  const T* partial;  // [segments, n]
  T* out;            // [n]
  std::int64_t segments, n;
  __device__ void operator()(std::int64_t e) const {
    T sum = 0;
    for (std::int64_t s = 0; s < segments; ++s) sum += partial[s * n + e];
    out[e] = sum;
  }
};

template <class T> void collect(const CollectRows<T>& f, std::int64_t segments) {
  const GatherPlan& p = f.plan;
  const std::int64_t warps = segments * p.groups * p.rows * ((p.width + kColumns - 1) / kColumns);
  cuda::warp_rows(warps, f);
}

}  // namespace

void embedding_backward_on(Cuda, const GatherPlan& plan, const Tensor& dy, const Tensor& ids,
                           Tensor& dtable) {
  // Long lists are cut into segments with a table each, as many as memory allows, so that a
  // frequent id (the padding) does not keep one warp busy while all others are done.
  const std::int64_t size = plan.rows * plan.width;
  const std::int64_t wanted = std::max<std::int64_t>(1, plan.picks / kMinSegment);
  const std::int64_t allowed = std::max<std::int64_t>(1, kMaxPartials / size);
  const std::int64_t segments = std::min(wanted, allowed);
  const std::int64_t segment = (plan.picks + segments - 1) / segments;
  dispatch_float(dy.dtype(), [&]<class T>() {
    const std::int32_t* const index = ids.data<std::int32_t>();
    if (segments == 1) {
      collect(CollectRows<T>{plan, index, dy.data<T>(), dtable.data<T>(), segment}, 1);
      return;
    }
    const Tensor partial =
        Tensor::empty({segments, size}, dy.dtype(), dy.device());  // [segments, V * E]
    collect(CollectRows<T>{plan, index, dy.data<T>(), partial.data<T>(), segment}, segments);
    cuda::map(size, AddPartials<T>{partial.data<T>(), dtable.data<T>(), segments, size});
  });
}

}  // namespace skytape::tensor
