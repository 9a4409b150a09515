// What the kernels of block attention read, CUDA only: rows gathered once by slots, in the numbers of
// the products, by a kernel of its own; what a pair's score depends on beside its product; and for
// each block the chunks of the other side that it walks. A tile is then a few chunks that are copied
// to shared memory (cp.async) without a question.
//
// A chunk is 16 rows of one block; blocks are padded to whole chunks, c' rows. Letters as in
// block_attention.hpp.
#pragma once

#include <cuda_pipeline.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "attention/blocks/block_attention_plan.hpp"
#include "attention/tiled/register_tiles.hpp"
#include "tensor/launch/cuda.hpp"
#include "tensor/launch/four.hpp"

namespace skytape::attention::block_cuda {

inline constexpr int kChunkRows = 16;
inline constexpr int kTileRows = 64;                        // most rows of a tile, of either side
inline constexpr int kTileChunks = kTileRows / kChunkRows;  // walks are whole tiles

/// Chunks that the blocks of one side walk: tiles of four, whose numbers begin at chunks[first]. The
/// last ones may be spare: zeros without a weight.
struct alignas(8) Walk {
  std::int32_t first, tiles;
};

/// What a pair's score depends on beside its product. A query sees a key if its place less the key's,
/// as an unsigned number, is below the key's span.
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
  std::uint8_t* counts;    // [chunks]: whether one of its rows may have a weight
  std::int32_t* chunks;    // of the other side, walk by walk
  Walk* walks;             // [B H, Q]
};

template <class Number, class T> struct Operands {
  Side<Number, Query<T>> queries;
  Side<Number, Key<T>> keys;
  unsigned block_rows;  // c'
  unsigned rows;        // B H Q c'; at least a tile of spare ones follows
};

/// Typed pointers of one call: [B, H, N, D], mask: [B, N]; lse, delta, dout by rows of out, backward.
template <class T> struct Source { const T *q, *k, *v, *mask, *lse, *delta, *dout; };

template <class T> Source<T> source_of(const BlockInputs& in, const Tensor& lse = {},
                                       const Tensor& delta = {}, const Tensor& dout = {}) {
  const auto given = [](const Tensor& x) { return x.defined() ? x.data<T>() : nullptr; };
  return {in.q.data<T>(), in.k.data<T>(), in.v.data<T>(), in.mask.data<T>(),
          given(lse),     given(delta),   given(dout)};
}

/// A block of cuda::kBlock threads writes a tile of rows.
template <class Core, int kWidth, class T> __global__ void __launch_bounds__(cuda::kBlock)
    block_operands_kernel(BlockPlan plan, Source<T> in, Operands<typename Core::Number, T> out) {
  using Number = typename Core::Number;
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

    const auto write_counts = [&](bool counts, std::uint8_t* chunks) {
      const int lane = static_cast<int>(threadIdx.x % cuda::kWarp);
      const int half = lane / kChunkRows * kChunkRows;
      const unsigned rows = __ballot_sync(register_tiles::kAllLanes, counts) >> half & 0xffffu;
      if (lane == half) chunks[to / kChunkRows] = rows != 0 ? 1 : 0;
    };
    // A padded key may be its own query's only one.
    write_counts(token >= 0 && (real || plan.avoid_self), out.keys.counts);
    write_counts(query.shift != register_tiles::minus_infinity<T>(), out.queries.counts);
  }
  __syncthreads();
  const auto gather = [&](const T* source, const std::int64_t* rows, Number* target) {
    if (target == nullptr) return;
    for (int e = threadIdx.x; e < kTileRows * kWidth / 4; e += cuda::kBlock) {
      const int row = e / (kWidth / 4), c = e % (kWidth / 4) * 4;
      const T* const from = rows[row] < 0 ? nullptr : source + rows[row] * plan.width;
      const cuda::Four<T> four = cuda::load_four(from, c, plan.width);
      cuda::Four<Number> rounded;
#pragma unroll
      for (int i = 0; i < 4; ++i) rounded.x[i] = Core::rounded(four.x[i]);
      rounded.store(target + std::int64_t{first + row} * kWidth + c);
    }
  };
  gather(in.q, picked.token, out.queries.first);
  gather(in.dout, picked.row, out.queries.second);
  gather(in.k, picked.token, out.keys.first);
  gather(in.v, picked.token, out.keys.second);
}

/// Which query blocks list a key block, in the order of the lists. A task for each list and key
/// block: its entries are counted together with those of smaller blocks, so that tasks need not meet.
struct InvertLists {
  const std::int32_t *row, *entries;  // [total], [A, total]
  std::int64_t total, blocks;
  std::int32_t* begin;    // [A, Q + 1]
  std::int32_t* inverse;  // [A, total]: what of it no list uses stays unwritten

  __device__ void operator()(std::int64_t task, const cuda::Warp& warp) const {
    const std::int64_t list = task / blocks, block = task % blocks;
    const auto entry = [&](std::int64_t e) {
      return e + warp.lane < total ? entries[list * total + e + warp.lane] : -1;
    };
    std::int32_t at = 0;
    for (std::int64_t e = 0; e < total; e += cuda::kWarp) {
      at += __popc(__ballot_sync(register_tiles::kAllLanes, entry(e) >= 0 && entry(e) < block));
    }
    std::int32_t* const own = begin + list * (blocks + 1) + block;
    if (warp.leader()) own[0] = at;
    for (std::int64_t e = 0; e < total; e += cuda::kWarp) {
      const bool hit = entry(e) == block;
      const unsigned hits = __ballot_sync(register_tiles::kAllLanes, hit);
      const int earlier = __popc(hits & ((1u << warp.lane) - 1));
      if (hit) inverse[list * total + at + earlier] = row[e + warp.lane];
      at += __popc(hits);
    }
    if (warp.leader() && block == blocks - 1) own[1] = at;
  }
};

/// The walk of each block of one side, [B H, Q]: the chunks of its listed blocks that count; none where
/// no own one does.
struct ListChunks {
  std::int64_t heads, lists, blocks, total;  // H, A, Q
  std::int64_t each;                         // chunks of a block
  const std::int32_t *begin, *listed;        // [begins, Q + 1], begins = 1 or A; [A, total]
  std::int64_t begins;
  const std::uint8_t *own_counts, *counts;  // [B H, Q each]
  std::int32_t spare;                       // a chunk for the rest of the last tile
  std::int32_t* chunks;                     // [B H, room(total, Q)]
  Walk* walks;

  /// Numbers before those of a block, where the blocks before it list so many.
  __host__ __device__ std::int64_t room(std::int64_t listed_before, std::int64_t block) const {
    return (listed_before * each + (kTileChunks - 1) * block) / kTileChunks * kTileChunks;
  }
  __device__ void operator()(std::int64_t task, const cuda::Warp& warp) const {
    const std::int64_t group = task / blocks, block = task % blocks;
    const std::int64_t list = lists == 1 ? 0 : group % heads;
    const std::int32_t* const own = begin + (begins == 1 ? 0 : list * (blocks + 1)) + block;
    const std::int32_t* const others = listed + list * total + own[0];
    const std::int64_t first = group * room(total, blocks) + room(own[0], block);
    const auto any_own = warp.max(
        each, [&](std::int64_t i) { return static_cast<float>(own_counts[task * each + i]); });
    const std::int64_t candidates = any_own > 0 ? (own[1] - own[0]) * each : 0;
    int count = 0;
    for (std::int64_t i = 0; i < candidates; i += cuda::kWarp) {
      const std::int64_t at = i + warp.lane;
      const std::int32_t other = at < candidates ? others[at / each] : -1;
      const std::int64_t chunk = (group * blocks + other) * each + at % each;
      const bool hit = other >= 0 && counts[chunk] != 0;
      const unsigned hits = __ballot_sync(register_tiles::kAllLanes, hit);
      const int earlier = __popc(hits & ((1u << warp.lane) - 1));
      if (hit) chunks[first + count + earlier] = static_cast<std::int32_t>(chunk);
      count += __popc(hits);
    }
    const int tiles = (count + kTileChunks - 1) / kTileChunks;
    if (warp.lane < tiles * kTileChunks - count) chunks[first + count + warp.lane] = spare;
    if (warp.leader()) walks[task] = {static_cast<std::int32_t>(first), tiles};
  }
};

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
  list.heads = plan.heads;
  list.lists = plan.lists;
  list.blocks = plan.row_blocks;
  list.total = plan.total;
  list.each = (plan.block + kChunkRows - 1) / kChunkRows;
  const std::int64_t used = blocks * list.each * kChunkRows;
  const std::int64_t tiles = (used + kTileRows - 1) / kTileRows + 1, rows = tiles * kTileRows;
  const std::int64_t room = plan.batch * plan.heads * list.room(plan.total, plan.row_blocks);
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
    side.counts = p.template take<std::uint8_t>(rows / kChunkRows);
    if (with_walks) side.walks = p.template take<Walk>(blocks);
  };
  take_side(a.queries, backward, true);
  take_side(a.keys, true, backward);
  cuda::launch("operands of block attention", block_operands_kernel<Core, kWidth, T>,
               static_cast<unsigned>(tiles), cuda::kBlock, 0, plan, in, a);

  const auto walk = [&](auto& own, const auto& other, const std::int32_t* begin,
                        const std::int32_t* listed, std::int64_t begins) {
    own.chunks = p.template take<std::int32_t>(room);
    list.begin = begin;
    list.listed = listed;
    list.begins = begins;
    list.own_counts = own.counts;
    list.counts = other.counts;
    list.chunks = own.chunks;
    list.walks = own.walks;
    cuda::warp_rows(blocks, list);
  };
  walk(a.queries, a.keys, plan.begin, plan.entries, 1);
  if (!backward) return p;
  auto* const begin = p.template take<std::int32_t>(plan.lists * (plan.row_blocks + 1));
  auto* const inverse = p.template take<std::int32_t>(plan.lists * plan.total);
  cuda::warp_rows(plan.lists * plan.row_blocks,
                  InvertLists{plan.row, plan.entries, plan.total, plan.row_blocks, begin, inverse});
  walk(a.keys, a.queries, begin, inverse, plan.lists);
  return p;
}

/// Blocks of a launch with one per `own` rows of every block of slots (Task).
inline unsigned tasks(const BlockPlan& plan, int own) {
  const std::int64_t blocks =
      plan.batch * plan.heads * plan.row_blocks * ((plan.block + own - 1) / own);
  ENSURE(blocks <= std::numeric_limits<std::int32_t>::max(), "block attention on cuda: ", blocks,
         " tiles are too many for one launch");
  return static_cast<unsigned>(blocks);
}
/// Of one product of the rows of all pairs of listed blocks.
inline std::int64_t multiply_adds_of_product(const BlockPlan& plan) {
  return plan.batch * plan.heads * plan.total * plan.block * plan.block * plan.width;
}

/// The rows that a block owns, a part of one of its blocks of slots.
struct Task {
  std::int64_t group;  // b H + h
  std::int64_t block;  // number of the block, [B H, Q]
  std::int64_t at;     // of the first row, in Operands
  std::int64_t slot;   // of the first row
  int rows;
  __device__ Task(const BlockPlan& plan, std::int64_t block_rows, int own) {
    const auto groups = static_cast<unsigned>(plan.batch * plan.heads);
    const auto tiles = static_cast<unsigned>((plan.block + own - 1) / own);
    group = blockIdx.x % groups;
    const unsigned in_order = blockIdx.x / groups / tiles;
    const int inside = static_cast<int>(blockIdx.x / groups % tiles) * own;
    const std::int32_t number = plan.order[in_order];
    const int left = static_cast<int>(plan.block) - inside;
    block = group * plan.row_blocks + number;
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

/// Begins to copy chunks of kWidth numbers a row to rows in shared memory kStride numbers apart, by all
/// threads of a block; they are there after __pipeline_wait_prior of each thread and a barrier.
template <int kThreads, int kChunks, int kWidth, int kStride, class Chunk, class Number>
__device__ void begin_chunks(const Chunk& chunk, const Number* source, Number* target) {
  constexpr int kRun = 16 / sizeof(Number);          // numbers of one copy
  constexpr int kRuns = kChunkRows * kWidth / kRun;  // of a chunk
  static_assert(kWidth == kStride || kWidth % kRun == 0);
#pragma unroll
  for (int i = 0; i < (kChunks * kRuns + kThreads - 1) / kThreads; ++i) {
    const int e = i * kThreads + static_cast<int>(threadIdx.x);
    if (kChunks * kRuns % kThreads != 0 && e >= kChunks * kRuns) break;
    const int c = e / kRuns, first = e % kRuns * kRun;
    const int row = kChunkRows * c + first / kWidth;
    const Number* const from = source + std::int64_t{chunk(c)} * (kChunkRows * kWidth) + first;
    __pipeline_memcpy_async(target + row * kStride + first % kWidth, from, 16);
  }
}

/// The same of facts.
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

/// Whether the key is the query's own, which has a score of its own (avoid_self).
template <class T> __device__ bool is_self(const Query<T>& query, const Key<T>& key) {
  return query.token == key.token;
}
/// The score of a pair from its product, base 2, without the query's shift. kRules: whether pairs have
/// rules.
template <bool kRules, class T>
__device__ T score_of(T product, T scale, const Query<T>& query, const Key<T>& key) {
  const T score = scale * product + key.shift;
  if (!kRules) return score;
  if (is_self(query, key)) return register_tiles::kLog2E<T> * static_cast<T>(kSelfScore);
  return query.place - key.place < key.span ? score : register_tiles::minus_infinity<T>();
}

}  // namespace skytape::attention::block_cuda
