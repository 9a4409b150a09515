// CUDA half of the embedding's backward. The owner computes: a warp owns some columns of the whole
// table, where that fits into shared memory, and adds every token to its row; or some columns of one row,
// looks through the list of ids for it and adds what it finds, in order. No atomics, so sums repeat.
#include "tensor/core/tensor.hpp"
#include "tensor/movement/gather.hpp"

#include "tensor/launch/columns.hpp"
#include "tensor/launch/cuda.hpp"
#include "tensor/launch/launch.hpp"
#include "tensor/movement/gather_plan.hpp"

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

// ---- a table in shared memory --------------------------------------------------------------------

constexpr int kTableWarps = 2;  // of a block, each with its columns
constexpr std::int64_t kTableColumns = kTableWarps * cuda::kWarp;  // of a block
constexpr std::size_t kTableBytes = 96 * 1024;

template <class T> struct TableSums {
  const std::int32_t* index;  // [picks]
  const T* y;                 // [picks, width]
  T* target;                  // [chunks, rows, width]
  std::int64_t picks, rows, width, chunk, chunks;
};

/// A block per chunk of the picks and 64 columns: its warps add up the rows of y with the same index.
template <class T> __global__ void __launch_bounds__(kTableWarps* cuda::kWarp)
    table_kernel(cuda::Late<TableSums<T>> late) {
  const TableSums<T>& in = late.wait();
  constexpr int kLoads = 8;  // rows on their way
  const int lane = threadIdx.x % cuda::kWarp;
  T* const table = reinterpret_cast<T*>(cuda::dynamic_shared()) + threadIdx.x;  // [rows, 64]
  const std::int64_t slices = ceil_div(in.width, kTableColumns);
  for (std::int64_t task = blockIdx.x; task < in.chunks * slices; task += gridDim.x) {
    const std::int64_t column = task % slices * kTableColumns + threadIdx.x;
    const std::int64_t begin = task / slices * in.chunk;
    const std::int64_t end = math::min(begin + in.chunk, in.picks);
    const bool real = column < in.width;
    for (std::int64_t r = 0; r < in.rows; ++r) table[r * kTableColumns] = T(0);
    for (std::int64_t first = begin; first < end; first += cuda::kWarp) {
      const int mine = first + lane < end ? in.index[first + lane] : 0;
      const int count = static_cast<int>(math::min(end - first, std::int64_t{cuda::kWarp}));
      for (int i = 0; i < count; i += kLoads) {
        T row[kLoads];
#pragma unroll
        for (int u = 0; u < kLoads; ++u) {
          row[u] = real && i + u < count ? in.y[(first + i + u) * in.width + column] : T(0);
        }
#pragma unroll
        for (int u = 0; u < kLoads; ++u) {
          const int to = __shfl_sync(cuda::kAllLanes, mine, (i + u) % cuda::kWarp);
          if (i + u < count) table[to * kTableColumns] += row[u];
        }
      }
    }
    if (!real) continue;
    T* const to = in.target + task / slices * in.rows * in.width + column;
    for (std::int64_t r = 0; r < in.rows; ++r) to[r * in.width] = table[r * kTableColumns];
  }
}

/// Picks of a chunk: as many as there are rows, or the chunks' tables would be more than y, and no more
/// than 256 chunks. A function of the sizes alone, so that no sum depends on a grid.
std::int64_t table_chunk(const GatherPlan& plan) {
  std::int64_t chunk = 64;
  while (chunk < plan.rows || plan.picks > 256 * chunk) chunk *= 2;
  return chunk;
}

/// Whether it was done.
template <class T>
bool sum_by_table(const GatherPlan& plan, const std::int32_t* index, const T* y, Tensor& dtable) {
  const std::size_t bytes = static_cast<std::size_t>(plan.rows * kTableColumns) * sizeof(T);
  if (bytes > kTableBytes) return false;
  const std::int64_t chunk = table_chunk(plan), size = plan.rows * plan.width;
  const std::int64_t chunks = std::max<std::int64_t>(ceil_div(plan.picks, chunk), 1);
  Tensor partial;  // [chunks, V E]
  if (chunks > 1) partial = Tensor::empty(Shape({chunks, size}), kDTypeOf<T>, Device::cuda);
  T* const target = (chunks > 1 ? partial : dtable).template data<T>();
  const std::int64_t slices = ceil_div(plan.width, kTableColumns);
  cuda::launch(
      {"rows by index", cuda::grid_for(chunks * slices, 1), kTableWarps * cuda::kWarp, bytes},
      table_kernel<T>,
      TableSums<T>{index, y, target, plan.picks, plan.rows, plan.width, chunk, chunks});
  if (chunks > 1) {
    columns<1, T>(1, chunks, size, PartialEntry<T>{target, chunks, size}, dtable.data<T>());
  }
  return true;
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
  const std::int64_t segment = ceil_div(plan.picks, segments);
  dispatch_float(dy.dtype(), [&]<class T>() {
    const std::int32_t* const index = ids.data<std::int32_t>();
    if (sum_by_table(plan, index, dy.data<T>(), dtable)) return;
    if (segments == 1) {
      collect(CollectRows<T>{plan, index, dy.data<T>(), dtable.data<T>(), segment}, 1);
      return;
    }
    const Tensor partial =
        Tensor::empty({segments, size}, dy.dtype(), dy.device());  // [segments, V * E]
    collect(CollectRows<T>{plan, index, dy.data<T>(), partial.data<T>(), segment}, segments);
    columns<1, T>(1, segments, size, PartialEntry<T>{partial.data<T>(), segments, size},
                  dtable.data<T>());
  });
}

}  // namespace skytape::tensor
