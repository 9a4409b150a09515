// CUDA half of the embedding's backward. Where tables fit into shared memory, token_sums.cu adds
// every token to its row. Where there is memory for several tables and there are tokens for several
// segments, the owner computes: a warp owns some columns of one row, looks through a segment of the
// ids for it and adds what it finds, in order. Else the ids are sorted (scatter_add_rows), as for
// tables of pre-trained encoders. No atomics, so sums repeat.
#include "tensor/embedding/embedding.hpp"

#include "tensor/core/tensor.hpp"
#include "tensor/embedding/token_sums.hpp"
#include "tensor/launch/columns.hpp"
#include "tensor/launch/cuda.hpp"
#include "tensor/launch/launch.hpp"
#include "tensor/movement/gather.hpp"

namespace skytape::tensor {
namespace {

constexpr int kPerLane = 4;                                   // columns that a lane adds up
constexpr std::int64_t kColumns = kPerLane * cuda::kWarp;     // columns of a warp
constexpr int kAhead = 4;                                     // rows on their way at a time
constexpr std::int64_t kMinSegment = 256;                     // tokens of a warp, at least
constexpr std::int64_t kMaxPartials = std::int64_t{1} << 23;  // entries of the partial tables

/// One warp per (segment of the tokens, row of the table, block of columns). Stores the sum of the
/// rows of dy whose id is that row's.
template <class T> struct CollectRows {
  std::int64_t tokens, vocabulary, width;  // T, V, E
  const std::int32_t* ids;                 // [T]
  const T* dy;                             // [T, E]
  T* target;                               // [segments, V, E]
  std::int64_t segment;                    // tokens per segment

  __device__ void operator()(std::int64_t task, const cuda::Warp& warp) const {
    const std::int64_t blocks = ceil_div(width, kColumns);
    const std::int64_t first_column = task % blocks * kColumns + warp.lane;
    const std::int64_t target_row = task / blocks;  // over segments and rows
    const std::int64_t row = target_row % vocabulary;
    const std::int64_t begin = target_row / vocabulary * segment;
    const std::int64_t end = math::min(begin + segment, tokens);
    const T* const rows = dy + first_column;
    T* const to = target + target_row * width + first_column;
    T sum[kPerLane] = {};
    for (std::int64_t i = begin; i < end; i += cuda::kWarp) {
      const bool hit = i + warp.lane < end && ids[i + warp.lane] == row;
      unsigned hits = __ballot_sync(cuda::kAllLanes, hit);
      while (hits != 0) {  // a few rows on their way at a time
        T found[kAhead][kPerLane] = {};
#pragma unroll
        for (int a = 0; a < kAhead; ++a) {
          if (hits == 0) break;
          const T* const from = rows + (i + __ffs(static_cast<int>(hits)) - 1) * width;
          hits &= hits - 1;
#pragma unroll
          for (int u = 0; u < kPerLane; ++u) {
            if (first_column + u * cuda::kWarp < width) found[a][u] = from[u * cuda::kWarp];
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
      if (first_column + u * cuda::kWarp < width) to[u * cuda::kWarp] = sum[u];
    }
  }
};

}  // namespace

void embedding_backward_on(Cuda, const Tensor& dy, const Tensor& ids, Tensor& dtable) {
  const std::int64_t tokens = ids.numel(), rows = dtable.size(0), width = dtable.size(1);
  if (token_table_fits(rows, dy.dtype())) {
    Tensor none;
    return token_sums_on(Cuda{}, {}, 0, dy.reshape({1, tokens, width}), ids, none, none, dtable);
  }
  // Long lists are cut into segments with a table each, as many as memory allows, so that a
  // frequent id (the padding) does not keep one warp busy while all others are done.
  const std::int64_t size = rows * width;
  const std::int64_t wanted = std::max<std::int64_t>(1, tokens / kMinSegment);
  const std::int64_t allowed = std::max<std::int64_t>(1, kMaxPartials / size);
  const std::int64_t segments = std::min(wanted, allowed);
  if (segments == 1) {
    dtable.fill(0);
    return scatter_add_rows_on(Cuda{}, {1, rows, tokens, width, 1}, dtable, ids, dy);
  }
  const std::int64_t segment = ceil_div(tokens, segments);
  dispatch_float(dy.dtype(), [&]<class T>() {
    const Tensor partial = empty_like(dy, {segments, size});
    cuda::warp_rows(segments * rows * ceil_div(width, kColumns),
                    CollectRows<T>{tokens, rows, width, ids.data<std::int32_t>(), dy.data<T>(),
                                   partial.data<T>(), segment});
    columns<1, T>(1, segments, size, PartialEntry<T>{partial.data<T>(), segments, size},
                  dtable.data<T>());
  });
}

}  // namespace skytape::tensor
