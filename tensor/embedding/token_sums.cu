// The backward pass of a look-up in one pass over dx: dropout, its sums over the batch for each
// position, and those over all tokens with the same id. The owner computes, in the order of the
// tokens: a lane has four columns of some positions, and in shared memory those columns of its own
// table.
#include <algorithm>
#include <cstdint>
#include <limits>

#include "tensor/core/tensor.hpp"
#include "tensor/embedding/token_sums.hpp"
#include "tensor/launch/columns.hpp"
#include "tensor/launch/four.hpp"
#include "tensor/random/kept_fours.hpp"

namespace skytape::tensor {
namespace {

using cuda::Four;
using cuda::kWarp;

constexpr int kMostWarps = 8;             // of a block
constexpr std::int64_t kMostParts = 128;  // blocks, about: as many as there are multiprocessors
constexpr std::size_t kTableBytes = 160 * 1024;  // of a block's warps

template <class T> struct TokenSums {
  DropoutPlan drop;         // threshold 0: nothing is dropped
  std::int64_t numbers;     // from one sequence's first element number to that of the next one
  const T* dx;              // [B, N, E]
  const std::int32_t* ids;  // [B, N]; null: no table
  T* d;                     // [B, N, E], dropped out; null: not asked for
  T* dsecond;               // [N, E]; null: not asked for
  T* tables;                // [parts, V, E]
  int batch, n, rows;       // B, N, V
  int batch_rows;           // of dx, to the same position of the next sequence
  int position_rows;        // to the next position
  int dx_rows;              // in all
  int e, row_lanes;         // lanes of a row, or of 128 of its columns: 1, 2, 4, … 32
  int groups, group_count;  // of positions that a warp has together: all, and those of a part
  int parts, slices;        // slices of 128 columns
};

constexpr int kAhead = 8;  // rows of a lane that are on their way at a time

/// The lane's four columns of a few sequences' rows, b on, at one position; zeros and no id where
/// there is none. kFours: rows are whole aligned fours.
template <class T, bool kFours> struct Loads {
  Four<T> value[kAhead];
  std::int32_t id[kAhead];

  __device__ Loads(const TokenSums<T>& in, bool mine, std::int64_t position, int b, int column) {
    std::int64_t row = position * in.position_rows + std::int64_t{b} * in.batch_rows;
#pragma unroll
    for (int a = 0; a < kAhead; ++a, row += in.batch_rows) {
      const bool real = mine && b + a < in.batch && row < in.dx_rows;
      const T* const from = in.dx + row * in.e;
      if constexpr (kFours) {
        value[a] = real ? Four<T>::at(from + column) : Four<T>{};
      } else {
        value[a] = cuda::load_four(real ? from : nullptr, column, in.e);
      }
      id[a] = real && in.ids != nullptr ? in.ids[row] : -1;
    }
  }
};

template <class T> __device__ void add(Four<T>& to, const Four<T>& one) {
#pragma unroll
  for (int u = 0; u < 4; ++u) to.x[u] += one.x[u];
}

/// Dropout's decisions about the fours of kAhead rows, sequences b on: four bits of each row.
template <class T> __device__ unsigned kept_rows(const TokenSums<T>& in, std::uint64_t step, int b,
                                                 int group, int slice) {
  unsigned kept = 0;
#pragma unroll 1
  for (int a = 0; a < kAhead; a += 2) {
    const std::int64_t number = in.drop.first + (b + a) * in.numbers;
    const std::int64_t chunk = std::int64_t{group} * in.slices + slice;
    const unsigned two =
        philox::kept_fours(in.drop.key, step, number / philox::kChunk + chunk,
                           (number + in.numbers) / philox::kChunk + chunk, in.drop.threshold);
    kept = kept >> 8 | (two & 15u) << 24 | (two >> 16 & 15u) << 28;
  }
  return kept;
}

/// Adds up the tables [warps, V, 32] of all lanes with the same columns, warp by warp, position by
/// position, to the part's.
template <class T> __device__ void add_tables(const TokenSums<T>& in, const Four<T>* tables,
                                              int warps, int at_once, int part, int slice) {
  for (int i = threadIdx.x; i < in.rows * in.row_lanes; i += static_cast<int>(blockDim.x)) {
    const int row = i / in.row_lanes, first = i % in.row_lanes;
    Four<T> total{};
#pragma unroll 4
    for (int copy = 0; copy < warps * at_once; ++copy) {
      add(total,
          tables[(copy / at_once * in.rows + row) * kWarp + copy % at_once * in.row_lanes + first]);
    }
    const int c = slice * 4 * kWarp + 4 * first;
    T* const to = in.tables + (std::int64_t{part} * in.rows + row) * in.e;
    if (c < in.e) cuda::store_four(total, to, c, in.e);
  }
}

/// A block per (part of the positions, 128 columns). A warp comes to few rows and would wait for
/// its instructions, were they many: what is rare or long stands outside of unrolled loops.
template <class T, bool kFours> __global__ void __launch_bounds__(kMostWarps* kWarp, 1)
    token_sums_kernel(cuda::Late<TokenSums<T>> late) {
  const TokenSums<T>& in = late.wait();
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int at_once = kWarp / in.row_lanes, own = lane / in.row_lanes;  // positions of a group
  const std::uint64_t step = philox::step_of(in.drop.step);
  const T scale = static_cast<T>(in.drop.scale);
  auto* const tables = reinterpret_cast<Four<T>*>(cuda::dynamic_shared());  // [warps, V, 32]
  Four<T>* const table = tables + warp * in.rows * kWarp + lane;            // [V]
  for (int task = blockIdx.x; task < in.parts * in.slices; task += gridDim.x) {
    const int part = task / in.slices, slice = task % in.slices;
    const int column = slice * 4 * kWarp + 4 * (lane % in.row_lanes);
    const int begin = part * in.group_count + warp;
    const int end = math::min((part + 1) * in.group_count, in.groups);
    const auto load = [&](int group, int b) {
      const int position = group * at_once + own;
      const bool mine = group < end && position < in.n && column < in.e;
      return Loads<T, kFours>(in, mine, position, b, column);
    };
    for (int r = 0; in.ids != nullptr && r < in.rows; ++r) table[r * kWarp] = {};
    Loads<T, kFours> next = load(begin, 0);
    for (int group = begin; group < end; group += warps) {
      const int position = group * at_once + own;
      const bool mine = position < in.n && column < in.e;
      Four<T> sum{};
      for (int b = 0; b < in.batch; b += kAhead) {
        Loads<T, kFours> now = next;
        const bool last = b + kAhead >= in.batch;
        next = load(last ? group + warps : group, last ? 0 : b + kAhead);
        if (in.drop.threshold != 0) {
          const unsigned kept = kept_rows(in, step, b, group, slice);
#pragma unroll
          for (int a = 0; a < kAhead; ++a) philox::keep(now.value[a], kept >> (4 * a), scale);
        }
        if (in.d != nullptr && mine) {
#pragma unroll
          for (int a = 0; a < kAhead; ++a) {
            if (b + a >= in.batch) continue;
            const std::int64_t row = std::int64_t{b + a} * in.n + position;
            cuda::store_four(now.value[a], in.d + row * in.e, column, in.e);
          }
        }
#pragma unroll
        for (int a = 0; a < kAhead; ++a) {
          if (0 <= now.id[a] && now.id[a] < in.rows) add(table[now.id[a] * kWarp], now.value[a]);
          add(sum, now.value[a]);
        }
      }
      if (in.dsecond != nullptr && mine) {
        cuda::store_four(sum, in.dsecond + std::int64_t{position} * in.e, column, in.e);
      }
    }
    if (in.ids == nullptr) continue;
    __syncthreads();
    add_tables(in, tables, warps, at_once, part, slice);
    __syncthreads();  // the next task reuses the tables
  }
}

/// Bytes of a warp's tables.
template <class T> std::size_t table_bytes(std::int64_t rows) {
  return static_cast<std::size_t>(rows) * kWarp * sizeof(Four<T>);
}

/// Shared memory for a block's tables, as far as the device has it.
std::size_t room_for_tables() { return std::min(kTableBytes, cuda::device_facts().shared_bytes); }

}  // namespace

bool token_table_fits(std::int64_t rows, DType dtype) {
  return (dtype == DType::f64 ? table_bytes<double>(rows) : table_bytes<float>(rows)) <=
         room_for_tables();
}

void token_sums_on(Cuda, const DropoutPlan& drop, std::int64_t numbers, const Tensor& dx,
                   const Tensor& ids, Tensor& d, Tensor& dsecond, Tensor& dtable) {
  // A mere list of tokens is taken as a few sequences whose tokens take turns.
  const bool list = dx.size(0) == 1 && !dsecond.defined() && !d.defined() && drop.threshold == 0;
  const std::int64_t batch = list ? kAhead : dx.size(0);
  const std::int64_t n = list ? ceil_div(dx.size(1), kAhead) : dx.size(1);
  const std::int64_t e = dx.size(2);
  ENSURE(dx.rows() <= std::numeric_limits<std::int32_t>::max() / 2,
         "token_sums: too many tokens: ", dx);
  const std::int64_t rows = dtable.defined() ? dtable.size(0) : 0;
  std::int64_t row_lanes = 1;
  while (row_lanes < kWarp && 4 * row_lanes < e) row_lanes *= 2;
  const std::int64_t groups = std::max<std::int64_t>(1, ceil_div(n, kWarp / row_lanes));
  const std::int64_t slices = ceil_div(e, 4 * kWarp);
  dispatch_float(dx.dtype(), [&]<class T>() {
    const std::size_t bytes = table_bytes<T>(rows);
    const auto warps = static_cast<std::int64_t>(
        std::min<std::size_t>(kMostWarps, room_for_tables() / std::max<std::size_t>(bytes, 1)));
    // A function of the sizes alone, so that no sum depends on a grid.
    const std::int64_t most = std::max<std::int64_t>(1, kMostParts / slices);
    const std::int64_t group_count = ceil_div(groups, std::min(most, ceil_div(groups, warps)));
    const std::int64_t parts = ceil_div(groups, group_count);
    Tensor partial;  // [parts, V, E]
    if (rows > 0 && parts > 1) partial = empty_like(dx, {parts, rows, e});
    T* const tables = (partial.defined() ? partial : dtable).template data_or_null<T>();
    const auto fits = [](std::int64_t size) { return static_cast<int>(size); };
    const TokenSums<T> in{drop,
                          numbers,
                          dx.data<T>(),
                          rows > 0 ? ids.data<std::int32_t>() : nullptr,
                          d.data_or_null<T>(),
                          dsecond.data_or_null<T>(),
                          tables,
                          fits(batch),
                          fits(n),
                          fits(rows),
                          fits(list ? 1 : n),
                          list ? kAhead : 1,
                          fits(dx.rows()),
                          fits(e),
                          fits(row_lanes),
                          fits(groups),
                          fits(group_count),
                          fits(parts),
                          fits(slices)};
    const bool fours = e % 4 == 0 && Four<T>::aligned(in.dx) && Four<T>::aligned(in.d) &&
                       Four<T>::aligned(in.dsecond);
    cuda::launch({"sums by token and position", cuda::grid_for(parts * slices, 1),
                  static_cast<unsigned>(warps * kWarp), static_cast<std::size_t>(warps) * bytes},
                 fours ? token_sums_kernel<T, true> : token_sums_kernel<T, false>, in);
    if (partial.defined()) {
      columns<1, T>(1, parts, rows * e, PartialEntry<T>{tables, parts, rows * e}, dtable.data<T>());
    }
  });
}

}  // namespace skytape::tensor
