// What a look-up's backward makes of dx in one pass: dropout, its sums over the batch for each position,
// and those over all tokens with the same id. The owner computes, in the order of the tokens: a lane has
// four columns of some positions, and in shared memory those columns of a table of its own.
#include <algorithm>
#include <cstdint>

#include "tensor/core/tensor.hpp"
#include "tensor/launch/columns.hpp"
#include "tensor/launch/four.hpp"
#include "tensor/movement/token_sums.hpp"
#include "tensor/random/kept_fours.hpp"

namespace skytape::tensor {
namespace {

using cuda::Four;
using cuda::kWarp;

constexpr int kMostWarps = 8;             // of a block
constexpr std::int64_t kMostParts = 128;  // blocks, about: as many as there are multiprocessors
constexpr std::size_t kTableBytes = 160 * 1024;  // of a block's warps

template <class T> struct TokenSums {
  DropoutPlan drop;             // threshold 0: nothing is dropped
  std::int64_t numbers;         // from one sequence's first element number to that of the next one
  const T* dx;                  // [B, N, E]
  const std::int32_t* ids;      // [B, N]; null: no table
  T* d;                         // [B, N, E], dropped out; null: not asked for
  T* dsecond;                   // [N, E]; null: not asked for
  T* tables;                    // [parts, V, E]
  std::int64_t batch, n, rows;  // B, N, V
  int e, row_lanes;             // lanes of a row, or of 128 of its columns
  std::int64_t groups, group_count, parts,
      slices;  // of positions: in all, of a part; of 128 columns
};

/// Where a warp is: it takes the same positions of every sequence, then its next ones.
struct Place {
  std::int64_t group, b = 0;
};

/// A block per (part of the positions, 128 columns).
template <class T> __global__ void __launch_bounds__(kMostWarps* kWarp)
    token_sums_kernel(cuda::Late<TokenSums<T>> late) {
  const TokenSums<T>& in = late.wait();
  constexpr int kAhead = 64 / sizeof(T);  // rows on their way
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const std::uint64_t step = philox::step_of(in.drop.step);
  const T scale = static_cast<T>(in.drop.scale);
  auto* const tables = reinterpret_cast<Four<T>*>(cuda::dynamic_shared());       // [warps, V, 32]
  Four<T>* const table = tables + threadIdx.x / kWarp * in.rows * kWarp + lane;  // [V]
  for (std::int64_t task = blockIdx.x; task < in.parts * in.slices; task += gridDim.x) {
    const std::int64_t part = task / in.slices, slice = task % in.slices;
    const int column = static_cast<int>(slice) * 4 * kWarp + 4 * (lane % in.row_lanes);
    const std::int64_t end = math::min((part + 1) * in.group_count, in.groups);
    const auto advance = [&](Place& place) {
      if (++place.b < in.batch) return;
      place.b = 0;
      place.group += warps;
    };
    const auto position = [&](const Place& place) {
      return place.group * (kWarp / in.row_lanes) + lane / in.row_lanes;
    };
    const auto mine = [&](const Place& place) {
      return place.group < end && position(place) < in.n && column < in.e;
    };
    if (in.ids != nullptr) {
      for (std::int64_t r = 0; r < in.rows; ++r) table[r * kWarp] = {};
    }
    Place loading{part * in.group_count + threadIdx.x / kWarp}, adding = loading;
    Four<T> value[kAhead];
    std::int32_t id[kAhead];
    const auto load = [&](int a) {
      const bool real = mine(loading);
      const std::int64_t row = loading.b * in.n + position(loading);
      value[a] = cuda::load_four(real ? in.dx + row * in.e : nullptr, column, in.e);
      id[a] = real && in.ids != nullptr ? in.ids[row] : -1;
      advance(loading);
    };
    Four<T> sum{};
    const auto add = [&](int a) {
      const bool real = mine(adding);
      const std::int64_t at = position(adding);
      if (real && in.d != nullptr) {
        cuda::store_four(value[a], in.d + (adding.b * in.n + at) * in.e, column, in.e);
      }
      if (0 <= id[a] && id[a] < in.rows) {
        Four<T> total = table[id[a] * kWarp];
#pragma unroll
        for (int u = 0; u < 4; ++u) total.x[u] += value[a].x[u];
        table[id[a] * kWarp] = total;
      }
#pragma unroll
      for (int u = 0; u < 4; ++u) sum.x[u] += value[a].x[u];
      if (adding.b + 1 == in.batch) {
        if (real && in.dsecond != nullptr) {
          cuda::store_four(sum, in.dsecond + at * in.e, column, in.e);
        }
        sum = {};
      }
      advance(adding);
    };
#pragma unroll
    for (int a = 0; a < kAhead; ++a) load(a);
    while (adding.group < end) {
#pragma unroll
      for (int a = 0; a < kAhead; a += 2) {
        if (in.drop.threshold != 0) {
          const auto chunk = [&](const Place& place) {
            return (in.drop.first + place.b * in.numbers) / philox::kChunk +
                   place.group * in.slices + slice;
          };
          Place next = adding;
          advance(next);
          const unsigned kept =
              philox::kept_fours(in.drop.key, step, chunk(adding), chunk(next), in.drop.threshold);
          philox::keep(value[a], kept, scale);
          philox::keep(value[a + 1], kept >> 16, scale);
        }
        add(a);
        add(a + 1);
        load(a);
        load(a + 1);
      }
    }
    if (in.ids == nullptr) continue;
    __syncthreads();
    // The tables of all lanes with the same columns.
    T* const to = in.tables + part * in.rows * in.e;
    const int copies = kWarp / in.row_lanes;
    for (std::int64_t i = threadIdx.x; i < in.rows * in.row_lanes; i += blockDim.x) {
      const std::int64_t row = i / in.row_lanes;
      const int own = static_cast<int>(i % in.row_lanes);
      Four<T> total{};
      for (int w = 0; w < warps; ++w) {
        for (int c = 0; c < copies; ++c) {
          const Four<T> one = tables[(w * in.rows + row) * kWarp + c * in.row_lanes + own];
#pragma unroll
          for (int u = 0; u < 4; ++u) total.x[u] += one.x[u];
        }
      }
      const int c = static_cast<int>(slice) * 4 * kWarp + 4 * own;
      if (c < in.e) cuda::store_four(total, to + row * in.e, c, in.e);
    }
    __syncthreads();  // the next task reuses the tables
  }
}

/// Bytes of a warp's tables.
template <class T> std::size_t table_bytes(std::int64_t rows) {
  return static_cast<std::size_t>(rows) * kWarp * sizeof(Four<T>);
}

}  // namespace

bool token_table_fits(std::int64_t rows, DType dtype) {
  return (dtype == DType::f64 ? table_bytes<double>(rows) : table_bytes<float>(rows)) <=
         kTableBytes;
}

void token_sums_on(Cuda, const DropoutPlan& drop, std::int64_t numbers, const Tensor& dx,
                   const Tensor& ids, Tensor& d, Tensor& dsecond, Tensor& dtable) {
  const std::int64_t batch = dx.size(0), n = dx.size(1), e = dx.size(2);
  const std::int64_t rows = dtable.defined() ? dtable.size(0) : 0;
  std::int64_t row_lanes = 1;
  while (row_lanes < kWarp && 4 * row_lanes < e) row_lanes *= 2;
  const std::int64_t groups = std::max<std::int64_t>(1, ceil_div(n, kWarp / row_lanes));
  const std::int64_t slices = ceil_div(e, 4 * kWarp);
  dispatch_float(dx.dtype(), [&]<class T>() {
    const std::size_t bytes = table_bytes<T>(rows);
    const auto warps = static_cast<std::int64_t>(
        std::min<std::size_t>(kMostWarps, kTableBytes / std::max<std::size_t>(bytes, 1)));
    // A function of the sizes alone, so that no sum depends on a grid.
    const std::int64_t most = std::max<std::int64_t>(1, kMostParts / slices);
    const std::int64_t group_count = ceil_div(groups, std::min(most, ceil_div(groups, warps)));
    const std::int64_t parts = ceil_div(groups, group_count);
    Tensor partial;  // [parts, V, E]
    if (rows > 0 && parts > 1) partial = Tensor::empty({parts, rows, e}, dx.dtype(), dx.device());
    const auto or_null = [](Tensor& t) -> T* { return t.defined() ? t.data<T>() : nullptr; };
    T* const tables = or_null(partial.defined() ? partial : dtable);
    cuda::launch(
        {"sums by token and position", cuda::grid_for(parts * slices, 1),
         static_cast<unsigned>(warps * kWarp), static_cast<std::size_t>(warps) * bytes},
        token_sums_kernel<T>,
        TokenSums<T>{drop, numbers, dx.data<T>(), rows > 0 ? ids.data<std::int32_t>() : nullptr,
                     or_null(d), or_null(dsecond), tables, batch, n, rows, static_cast<int>(e),
                     static_cast<int>(row_lanes), groups, group_count, parts, slices});
    if (partial.defined()) {
      columns<1, T>(1, parts, rows * e, PartialEntry<T>{tables, parts, rows * e}, dtable.data<T>());
    }
  });
}

}  // namespace skytape::tensor
