// CUDA half of scatter_add_rows. Segments of the picks are sorted by the row that they name; then a
// warp, or some lanes of it, of the first pick of each row adds what all of its picks bring, in
// their order. No atomics, so sums repeat, and rows that nobody picks are not touched.
#include <algorithm>

#include "tensor/core/tensor.hpp"
#include "tensor/launch/narrow_rows.hpp"
#include "tensor/movement/bitonic.hpp"
#include "tensor/movement/gather.hpp"

namespace skytape::tensor {
namespace {

constexpr int kSegment = 2048;    // picks that a block sorts
constexpr int kSortBlock = 1024;  // threads, at most

/// The picks of each list, in segments, each sorted by row and then by position.
struct SortedPicks {
  std::int32_t *row, *pick;  // [lists, picks]
  std::int64_t picks, segments;

  __device__ std::int64_t begin(std::int64_t segment) const { return segment * kSegment; }
  __device__ std::int64_t end(std::int64_t segment) const {
    return math::min(begin(segment + 1), picks);
  }
};

__global__ void sort_picks_kernel(const std::int32_t* index, SortedPicks sorted, int padded) {
  auto& keys = cuda::shared<std::uint64_t[kSegment]>();
  const std::int64_t segment = blockIdx.x % sorted.segments, begin = sorted.begin(segment);
  const std::int64_t list = blockIdx.x / sorted.segments * sorted.picks + begin;
  const auto count = static_cast<int>(sorted.end(segment) - begin);
  for (int i = threadIdx.x; i < padded; i += blockDim.x) {
    keys[i] = i < count ? std::uint64_t{static_cast<std::uint32_t>(index[list + i])} << 32 |
                              static_cast<std::uint32_t>(begin + i)
                        : ~std::uint64_t{0};
  }
  __syncthreads();
  cuda::keep_smallest(keys, padded, padded);
  for (int i = threadIdx.x; i < count; i += blockDim.x) {
    sorted.row[list + i] = static_cast<std::int32_t>(keys[i] >> 32);
    sorted.pick[list + i] = static_cast<std::int32_t>(keys[i]);
  }
}

/// kLanes lanes of a warp per (group, sorted pick, block of columns), four columns each.
template <class T, int kLanes> struct AddPicks {
  using Lanes = cuda::Lanes<kLanes>;
  static constexpr int kColumns = 4 * kLanes;

  GatherPlan plan;
  SortedPicks sorted;
  const T* y;  // [groups, picks, width]
  T* x;        // [groups, rows, width]

  __device__ void operator()(std::int64_t task, const Lanes& lanes) const {
    const std::int64_t blocks = ceil_div(plan.width, kColumns);
    const auto first = static_cast<int>(task % blocks * kColumns) + 4 * lanes.lane;  // column
    const std::int64_t group = task / blocks / plan.picks, own = task / blocks % plan.picks;
    const std::int64_t list = group / plan.sharing * plan.picks;
    const std::int32_t *const rows = sorted.row + list, *const picks = sorted.pick + list;
    const std::int32_t row = rows[own];
    const std::int64_t segment = own / kSegment;
    const bool later = own > sorted.begin(segment) && rows[own - 1] == row;
    if (later || row < 0 || row >= plan.rows) return;  // the range is checked on the CPU
    for (std::int64_t s = 0; s < segment; s += kLanes) {
      const bool here = s + lanes.lane < segment && find(rows, s + lanes.lane, row) >= 0;
      if (lanes.ballot(here) != 0) return;  // an earlier segment's lanes add it
    }
    const T* const from = y + group * plan.picks * plan.width;
    T* const to = x + (group * plan.rows + row) * plan.width;
    cuda::Four<T> sum = cuda::load_four(to, first, plan.width);
    add_run(rows, picks, own, sorted.end(segment), row, first, from, sum, lanes);
    for (std::int64_t s = segment + 1; s < sorted.segments; s += kLanes) {
      const bool is_one = s + lanes.lane < sorted.segments;
      const std::int64_t found = is_one ? find(rows, s + lanes.lane, row) : -1;
      unsigned hits = lanes.ballot(found >= 0);
      for (; hits != 0; hits &= hits - 1) {
        const int lane = __ffs(static_cast<int>(hits)) - 1;
        add_run(rows, picks, lanes.of_lane(found, lane), sorted.end(s + lane), row, first, from,
                sum, lanes);
      }
    }
    cuda::store_four(sum, to, first, plan.width);
  }

  /// Returns the place in a segment where the picks of a row begin; -1: there are none.
  __device__ std::int64_t find(const std::int32_t* rows, std::int64_t segment,
                               std::int32_t row) const {
    std::int64_t low = sorted.begin(segment), high = sorted.end(segment);
    const std::int64_t end = high;
    while (low < high) {
      const std::int64_t middle = (low + high) / 2;
      // In the order of the sort, in which a negative row comes last.
      if (static_cast<std::uint32_t>(rows[middle]) < static_cast<std::uint32_t>(row)) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low < end && rows[low] == row ? low : -1;
  }

  /// Adds the picks of a row from sorted place `begin` on to the sums of the lane's columns.
  __device__ void add_run(const std::int32_t* rows, const std::int32_t* picks, std::int64_t begin,
                          std::int64_t end, std::int32_t row, int first, const T* from,
                          cuda::Four<T>& sum, const Lanes& lanes) const {
    int count = kLanes;
    for (std::int64_t i = begin; count == kLanes; i += kLanes) {
      const std::int64_t own = i + lanes.lane;
      const bool more = own < end && rows[own] == row;
      const std::int32_t pick = more ? picks[own] : 0;
      count = __popc(lanes.ballot(more));
#pragma unroll 4
      for (int j = 0; j < count; ++j) {
        const auto four =
            cuda::load_four(from, lanes.of_lane(pick, j), plan.picks, plan.width, first);
#pragma unroll
        for (int u = 0; u < 4; ++u) sum.x[u] += four.x[u];
      }
    }
  }
};

template <int kLanes, class T>
void add_picks(const GatherPlan& plan, const SortedPicks& sorted, const T* y, T* x) {
  using Add = AddPicks<T, kLanes>;
  const std::int64_t blocks = ceil_div(plan.width, Add::kColumns);
  cuda::lanes_rows<kLanes>(plan.groups * plan.picks * blocks, Add{plan, sorted, y, x});
}

}  // namespace

void scatter_add_rows_on(Cuda, const GatherPlan& plan, Tensor& x, const Tensor& index,
                         const Tensor& y) {
  const std::int64_t lists = plan.groups / plan.sharing;
  const Tensor memory = Tensor::empty({2, lists, plan.picks}, DType::i32, x.device());
  auto* const rows = memory.data<std::int32_t>();
  const SortedPicks sorted{rows, rows + lists * plan.picks, plan.picks,
                           ceil_div(plan.picks, kSegment)};
  const auto padded =
      static_cast<int>(cuda::padded_keys(std::min<std::int64_t>(plan.picks, kSegment)));
  cuda::launch({"sort picks", static_cast<unsigned>(lists * sorted.segments),
                static_cast<unsigned>(std::min(kSortBlock, padded / 2))},
               sort_picks_kernel, index.data<std::int32_t>(), sorted, padded);
  dispatch_float(x.dtype(), [&]<class T>() {
    const auto add = plan.width <= 32 ? add_picks<8, T> : add_picks<cuda::kWarp, T>;
    add(plan, sorted, y.data<T>(), x.data<T>());
  });
}

}  // namespace skytape::tensor
