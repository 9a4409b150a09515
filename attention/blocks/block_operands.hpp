// The operands that the kernels of block attention read, CUDA only. A separate kernel gathers the
// rows once by slots, in the number type of the products, together with each row's other terms of
// the scores. For each block it also lists the chunks of the other side that the block walks
// (block_walks.hpp). A tile is then a few chunks that are copied to shared memory (cp.async)
// without a test.
//
// Notation as in block_attention.hpp; c' rows of a block, padded to whole chunks.
#pragma once

#include <cuda_pipeline.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "attention/blocks/block_attention_plan.hpp"
#include "attention/blocks/block_walks.hpp"
#include "attention/tiled/register_tiles.hpp"
#include "tensor/core/tensor.hpp"
#include "tensor/launch/cuda.hpp"
#include "tensor/launch/four.hpp"

namespace skytape::attention::block_cuda {

/// A row's terms of its pairs' scores, besides the product. A query sees a key if its place less
/// the key's, as an unsigned number, is below the key's span.
template <class T> struct alignas(16) Query {
  T shift;  // added to scores, base 2: 0, or in backward -lse log2(e); -inf: no weight at all
  T delta;  // backward
  std::uint32_t place;
  std::int32_t token;  // whose key counts last (avoid_self); -2: none
};
template <class T> struct alignas(16) Key {
  T shift;  // 0, or -inf for padding
  std::uint32_t place, span;
  std::int32_t token;  // -1: none
};

/// One side, by rows of Operands; null where a pass has none.
template <class Number, class F> struct Side {
  using Fact = F;          // Query or Key
  Number *first, *second;  // [rows, kWidth]: q and dout, or k and v
  Fact* facts;             // [rows]
  Rows* rows;              // [chunks]
  std::int32_t* chunks;    // of the other side, walk by walk
  Walk* walks;             // [B H, Q, tiles of a block]
};

template <class Number, class T> struct Operands {
  Side<Number, Query<T>> queries;
  Side<Number, Key<T>> keys;
  unsigned block_rows;  // c'
  unsigned rows;        // B H Q c'; at least a tile of spare ones follows
};

/// Typed pointers of one call: [B, H, N, D], mask: [B, N]; lse, delta, dout by rows of out,
/// backward.
template <class T> struct Source { const T *q, *k, *v, *mask, *lse, *delta, *dout; };

template <class T> Source<T> source_of(const BlockInputs& in, const Tensor& lse = {},
                                       const Tensor& delta = {}, const Tensor& dout = {}) {
  return {in.q.data<T>(),        in.k.data<T>(),          in.v.data<T>(),        in.mask.data<T>(),
          lse.data_or_null<T>(), delta.data_or_null<T>(), dout.data_or_null<T>()};
}

/// Writes the metadata of row `to` of a side, combined over its chunk. All lanes of a chunk call
/// this.
__device__ inline void write_rows(unsigned to, bool counts, bool by_all, std::uint32_t place,
                                  Rows* chunks) {
  Rows rows;
  rows.counts = counts;
  rows.seen_by_all = counts && by_all;
  if (counts && !by_all) rows.low = rows.high = place;
  for (int offset = kChunkRows / 2; offset > 0; offset /= 2) {
    const auto from = [&](auto x) { return __shfl_xor_sync(cuda::kAllLanes, x, offset); };
    rows.add({from(rows.low), from(rows.high), from(int{rows.counts}) != 0,
              from(int{rows.seen_by_all}) != 0});
  }
  if (to % kChunkRows == 0) chunks[to / kChunkRows] = rows;
}

/// A tile of source's rows, zeros for -1, rounded, to target [.., kWidth] from row `first` on; null
/// target: none are asked for.
template <class Core, int kWidth, class T>
__device__ void gather(const T* source, std::int64_t width, const std::int64_t (&rows)[kTileRows],
                       typename Core::Number* target, unsigned first) {
  if (target == nullptr) return;
  for (int e = threadIdx.x; e < kTileRows * kWidth / 4; e += cuda::kBlockThreads) {
    const int row = e / (kWidth / 4), c = e % (kWidth / 4) * 4;
    const T* const from = rows[row] < 0 ? nullptr : source + rows[row] * width;
    const cuda::Four<T> four = cuda::load_four(from, c, width);
    cuda::Four<typename Core::Number> rounded;
#pragma unroll
    for (int i = 0; i < 4; ++i) rounded.x[i] = Core::rounded(four.x[i]);
    rounded.store(target + std::int64_t{first + row} * kWidth + c);
  }
}

/// A block of cuda::kBlockThreads threads writes a tile of rows.
template <class Core, int kWidth, class T> __global__ void __launch_bounds__(cuda::kBlockThreads)
    block_operands_kernel(BlockPlan plan, Source<T> in, Operands<typename Core::Number, T> out) {
  struct Picked {
    std::int64_t token[kTileRows], row[kTileRows];  // rows of q, k and v, and of out; -1: none
  };
  auto& picked = cuda::shared<Picked>();
  const unsigned first = blockIdx.x * kTileRows;
  if (threadIdx.x < kTileRows) {
    const unsigned to = first + threadIdx.x, blocks = static_cast<unsigned>(plan.row_blocks);
    const unsigned block = to / out.block_rows, inside = to % out.block_rows;
    const std::int64_t group = block / blocks;
    const std::int64_t slot = block % blocks * plan.block + inside;
    const bool has_slot = to < out.rows && inside < plan.block;
    const std::int64_t token = has_slot ? plan.token_at(group, slot) : -1;
    const std::int64_t row = token < 0 ? -1 : group * plan.rows + plan.row_at(group, slot);
    picked.token[threadIdx.x] = token < 0 ? -1 : group * plan.tokens + token;
    picked.row[threadIdx.x] = row;

    const bool real = token >= 0 && in.mask[group / plan.heads * plan.tokens + token] != T(0);
    const std::int64_t view = plan.views == 1 ? 0 : group % plan.heads;
    const bool placed = token >= 0 && plan.key_place != nullptr;
    const std::int32_t reach = placed ? plan.reach[view] : 0;
    const std::int32_t key_place = placed ? plan.key_place[view * plan.places + token] : kSeenByAll;
    const std::int32_t query_place = placed ? plan.query_place[view * plan.places + token] : 0;
    const bool seen_by_all = key_place == kSeenByAll;
    Key<T> key{};
    key.shift = real ? T(0) : register_tiles::minus_infinity<T>();
    key.place = seen_by_all ? 0 : static_cast<std::uint32_t>(key_place);
    key.span = seen_by_all ? ~0u : reach < 0 ? 0u : 2u * reach + 1;
    key.token = static_cast<std::int32_t>(token);
    out.keys.facts[to] = key;
    Query<T> query{};
    query.shift = token < 0 ? register_tiles::minus_infinity<T>() : T(0);
    if (token >= 0 && in.lse != nullptr) {
      const bool nothing = in.lse[row] == register_tiles::minus_infinity<T>();
      query.shift = nothing ? in.lse[row] : -register_tiles::kLog2E<T> * in.lse[row];
      query.delta = in.delta[row];
    }
    query.place = static_cast<std::uint32_t>(query_place + (reach < 0 ? 0 : reach));
    query.token = plan.avoid_self && token >= 0 ? key.token : -2;
    out.queries.facts[to] = query;

    // A padded key may be its own query's only one.
    write_rows(to, token >= 0 && (real || plan.avoid_self), seen_by_all, key.place, out.keys.rows);
    write_rows(to, query.shift != register_tiles::minus_infinity<T>(), false, query.place,
               out.queries.rows);
  }
  __syncthreads();
  gather<Core, kWidth>(in.q, plan.width, picked.token, out.queries.first, first);
  gather<Core, kWidth>(in.dout, plan.width, picked.row, out.queries.second, first);
  gather<Core, kWidth>(in.k, plan.width, picked.token, out.keys.first, first);
  gather<Core, kWidth>(in.v, plan.width, picked.token, out.keys.second, first);
}

/// The operands of a pass and the memory that holds them.
template <class Number, class T> struct PreparedOperands {
  Operands<Number, T> arrays{};
  std::vector<Tensor> memory;

  template <class X> X* take(std::int64_t count) {
    const std::int64_t bytes = count * static_cast<std::int64_t>(sizeof(X));
    memory.push_back(Tensor::empty({(bytes + 3) / 4}, DType::f32, Device::cuda));
    return reinterpret_cast<X*>(memory.back().template data<float>());
  }
};

/// Writes the operands of the forward pass, or of the backward pass if there is a dout.
template <class Core, int kWidth, class T>
PreparedOperands<typename Core::Number, T> prepare_operands(const BlockPlan& plan,
                                                            const Source<T>& in) {
  using Number = typename Core::Number;
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  PreparedOperands<Number, T> p;
  Operands<Number, T>& a = p.arrays;
  const bool backward = in.dout != nullptr;
  const std::int64_t blocks = plan.batch * plan.heads * plan.row_blocks;
  ListChunks list{};
  list.plan = plan;
  list.each = ceil_div(plan.block, kChunkRows);
  list.tiles = ceil_div(list.each, kTileChunks);
  const std::int64_t used = blocks * list.each * kChunkRows;
  const std::int64_t tiles = ceil_div(used, kTileRows) + 1, rows = tiles * kTileRows;
  const std::int64_t room = plan.batch * plan.heads * list.room(plan.total, plan.row_blocks, 0);
  ENSURE(std::max(room, rows) <= kMost, "block attention on cuda: ", room, " listed chunks or ",
         rows, " rows are too many for one launch");
  a.block_rows = static_cast<unsigned>(list.each * kChunkRows);
  a.rows = static_cast<unsigned>(used);
  list.spare = static_cast<std::int32_t>(used / kChunkRows);
  const auto take_side = [&](auto& side, bool with_second, bool with_walks) {
    using Fact = typename std::remove_reference_t<decltype(side)>::Fact;
    side.first = p.template take<Number>(rows * kWidth);
    if (with_second) side.second = p.template take<Number>(rows * kWidth);
    side.facts = p.template take<Fact>(rows);
    side.rows = p.template take<Rows>(rows / kChunkRows);
    if (with_walks) side.walks = p.template take<Walk>(blocks * list.tiles);
  };
  take_side(a.queries, backward, true);
  take_side(a.keys, true, backward);
  cuda::launch({"operands of block attention", static_cast<unsigned>(tiles), cuda::kBlockThreads},
               block_operands_kernel<Core, kWidth, T>, plan, in, a);

  const auto walk = [&](auto& own, const auto& other, const std::int32_t* begin,
                        const std::int32_t* listed, std::int64_t begins, bool own_keys) {
    own.chunks = p.template take<std::int32_t>(room);
    list.begin = begin;
    list.listed = listed;
    list.begins = begins;
    list.own_keys = own_keys;
    list.own = own.rows;
    list.others = other.rows;
    list.chunks = own.chunks;
    list.walks = own.walks;
    cuda::warp_rows(blocks * list.tiles, list);
  };
  walk(a.queries, a.keys, plan.begin, plan.entries, 1, false);
  if (!backward) return p;
  auto* const begin = p.template take<std::int32_t>(plan.lists * (plan.row_blocks + 1));
  auto* const inverse = p.template take<std::int32_t>(plan.lists * plan.total);
  cuda::warp_rows(plan.lists * plan.row_blocks,
                  InvertLists{plan.row, plan.entries, plan.total, plan.row_blocks, begin, inverse});
  walk(a.keys, a.queries, begin, inverse, plan.lists, true);
  return p;
}

/// Blocks of a launch with one per `own` rows of every block of slots (SlotRows).
inline unsigned tasks(const BlockPlan& plan, int own) {
  const std::int64_t blocks = plan.batch * plan.heads * plan.row_blocks * ceil_div(plan.block, own);
  ENSURE(blocks <= std::numeric_limits<std::int32_t>::max(), "block attention on cuda: ", blocks,
         " tiles are too many for one launch");
  return static_cast<unsigned>(blocks);
}

/// The rows that a block owns, a part of one of its blocks of slots.
struct SlotRows {
  std::int64_t group;  // b H + h
  std::int64_t walk;   // number of the walk
  std::int64_t at;     // of the first row, in Operands
  std::int64_t slot;   // of the first row
  int rows;
  __device__ SlotRows(const BlockPlan& plan, std::int64_t block_rows, int own) {
    const auto groups = static_cast<unsigned>(plan.batch * plan.heads);
    const auto tiles = static_cast<unsigned>(ceil_div(plan.block, own));
    group = blockIdx.x % groups;
    const unsigned in_order = blockIdx.x / groups / tiles;
    const int inside = static_cast<int>(blockIdx.x / groups % tiles) * own;
    const std::int32_t number = plan.order[in_order];
    const int left = static_cast<int>(plan.block) - inside;
    const std::int64_t block = group * plan.row_blocks + number;
    walk = block * ceil_div(plan.block, kTileRows) + inside / kTileRows;
    at = block * block_rows + inside;
    slot = number * plan.block + inside;
    rows = left < own ? left : own;
  }
  /// Addresses of the rows of x [B H, rows of out, width] that belong to own rows, null for none.
  template <class X, class T> __device__ auto out_rows(X* x, const BlockPlan& plan,
                                                       const Key<T>* keys,
                                                       std::int64_t width) const {
    return [=, this, &plan](int row) -> X* {
      if (row >= rows) return nullptr;
      const std::int64_t number = plan.slot != nullptr ? slot + row : keys[at + row].token;
      return number < 0 ? nullptr : x + (group * plan.rows + number) * width;
    };
  }
};

/// Begins to copy chunks of kWidth numbers a row to rows in shared memory kStride numbers apart, by
/// all threads of a block; they are there after __pipeline_wait_prior of each thread and a barrier.
template <int kThreads, int kChunks, int kWidth, int kStride, class Chunk, class Number>
__device__ void begin_chunks(const Chunk& chunk, const Number* source, Number* target) {
  constexpr int kRun = 16 / sizeof(Number);          // numbers of one copy
  constexpr int kRuns = kChunkRows * kWidth / kRun;  // of a chunk
  static_assert(kWidth == kStride || kWidth % kRun == 0);
#pragma unroll
  for (int i = 0; i < ceil_div(kChunks * kRuns, kThreads); ++i) {
    const int e = i * kThreads + static_cast<int>(threadIdx.x);
    if (kChunks * kRuns % kThreads != 0 && e >= kChunks * kRuns) break;
    const int c = e / kRuns, first = e % kRuns * kRun;
    const int row = kChunkRows * c + first / kWidth;
    const Number* const from = source + std::int64_t{chunk(c)} * (kChunkRows * kWidth) + first;
    __pipeline_memcpy_async(target + row * kStride + first % kWidth, from, 16);
  }
}

/// The same for Query or Key.
template <int kThreads, int kChunks, class Chunk, class Fact>
__device__ void begin_facts(const Chunk& chunk, const Fact* source, Fact* target) {
  constexpr int kFloats = sizeof(Fact) / sizeof(float);
  begin_chunks<kThreads, kChunks, kFloats, kFloats>(chunk, reinterpret_cast<const float*>(source),
                                                    reinterpret_cast<float*>(target));
}

/// The first of two things, or the second.
template <bool kFirst, class A, class B>
__device__ const auto& either(const A& first, const B& second) {
  if constexpr (kFirst) {
    return first;
  } else {
    return second;
  }
}

/// Returns whether the key is the query's own token, which has a separate score (avoid_self).
template <class T> __device__ bool is_self(const Query<T>& query, const Key<T>& key) {
  return query.token == key.token;
}
/// The score of a pair from its product, base 2, without the query's shift. kRules: whether pairs
/// have rules.
template <bool kRules, class T>
__device__ T score_of(T product, T scale, const Query<T>& query, const Key<T>& key) {
  const T score = scale * product + key.shift;
  if (!kRules) return score;
  if (is_self(query, key)) return register_tiles::kLog2E<T> * static_cast<T>(kSelfScore);
  return query.place - key.place < key.span ? score : register_tiles::minus_infinity<T>();
}

}  // namespace skytape::attention::block_cuda
