// CUDA half of the embedding's backward. Where tables fit into shared memory, token_sums.cu adds
// every token to its row. Else the owner computes: a warp owns some columns of one row, looks
// through the list of ids for it and adds what it finds, in order. No atomics, so sums repeat.
#include "tensor/core/tensor.hpp"
#include "tensor/movement/gather.hpp"

#include "tensor/launch/columns.hpp"
#include "tensor/launch/cuda.hpp"
#include "tensor/launch/launch.hpp"
#include "tensor/movement/token_sums.hpp"

namespace skytape::tensor {
namespace {

constexpr int kPerLane = 4;                                   // columns that a lane adds up
constexpr std::int64_t kColumns = kPerLane * cuda::kWarp;     // columns of a warp
constexpr int kAhead = 4;                                     // rows on their way at a time
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
    const std::int64_t blocks = ceil_div(plan.width, kColumns);
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
      unsigned hits = __ballot_sync(cuda::kAllLanes, hit);
      while (hits != 0) {  // a few rows on their way at a time
        T found[kAhead][kPerLane] = {};
#pragma unroll
        for (int a = 0; a < kAhead; ++a) {
          if (hits == 0) break;
          const T* const from = rows + (i + __ffs(static_cast<int>(hits)) - 1) * plan.width;
          hits &= hits - 1;
#pragma unroll
          for (int u = 0; u < kPerLane; ++u) {
            if (first_column + u * cuda::kWarp < plan.width) found[a][u] = from[u * cuda::kWarp];
          }
        }
#pragma unroll
        for (int a = 0; a < kAhead; ++a) {
#pragma unroll
          for (int u = 0; u < kPerLane; ++u) sum[u] += found[a][u];
        }
      }
    }
#pragma unroll
    for (int u = 0; u < kPerLane; ++u) {
      if (first_column + u * cuda::kWarp < plan.width) to[u * cuda::kWarp] = sum[u];
    }
  }
};

template <class T> void collect(const CollectRows<T>& f, std::int64_t segments) {
  const GatherPlan& p = f.plan;
  const std::int64_t warps = segments * p.groups * p.rows * ceil_div(p.width, kColumns);
  cuda::warp_rows(warps, f);
}

}  // namespace

void embedding_backward_on(Cuda, const GatherPlan& plan, const Tensor& dy, const Tensor& ids,
                           Tensor& dtable) {
  if (token_table_fits(plan.rows, dy.dtype())) {
    Tensor none;
    return token_sums_on(Cuda{}, {}, 0, dy.reshape({1, plan.picks, plan.width}), ids, none, none,
                         dtable);
  }
  // Long lists are cut into segments with a table each, as many as memory allows, so that a
  // frequent id (the padding) does not keep one warp busy while all others are done.
  const std::int64_t size = plan.rows * plan.width;
  const std::int64_t wanted = std::max<std::int64_t>(1, plan.picks / kMinSegment);
  const std::int64_t allowed = std::max<std::int64_t>(1, kMaxPartials / size);
  const std::int64_t segments = std::min(wanted, allowed);
  const std::int64_t segment = ceil_div(plan.picks, segments);
  dispatch_float(dy.dtype(), [&]<class T>() {
    const std::int32_t* const index = ids.data<std::int32_t>();
    if (segments == 1) {
      collect(CollectRows<T>{plan, index, dy.data<T>(), dtable.data<T>(), segment}, 1);
      return;
    }
    const Tensor partial = empty_like(dy, {segments, size});  // [segments, V * E]
    collect(CollectRows<T>{plan, index, dy.data<T>(), partial.data<T>(), segment}, segments);
    columns<1, T>(1, segments, size, PartialEntry<T>{partial.data<T>(), segments, size},
                  dtable.data<T>());
  });
}

}  // namespace skytape::tensor
