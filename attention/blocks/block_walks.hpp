// The lists of chunks of the other side that the rows of a tile see, CUDA only. There is one list a
// tile, chunks that are seen whole come first, and the kernels of block attention walk it without a
// test.
//
// A chunk is 16 rows of one block; blocks are padded to whole chunks. Notation as in
// block_attention.hpp.
#pragma once

#include <cstdint>
#include <utility>

#include "attention/blocks/block_attention_plan.hpp"
#include "tensor/core/tensor.hpp"
#include "tensor/launch/cuda.hpp"

namespace skytape::attention::block_cuda {

inline constexpr int kChunkRows = 16;
inline constexpr int kTileRows = 64;                        // most rows of a tile, of either side
inline constexpr int kTileChunks = kTileRows / kChunkRows;  // walks are whole tiles

/// Chunks that a tile of one side walks: tiles of four, whose numbers begin at chunks[first]. The
/// last ones may be spare: zeros without a weight. In the first `open` tiles every pair is seen,
/// and none is a token and its own key.
struct Walk {
  std::int32_t first, tiles, open;
};

/// Metadata of some rows of one side: whether one may have a weight, and the range of places of
/// those that may. Keys that all queries see are kept separately.
struct Rows {
  std::uint32_t low = ~0u, high = 0;  // low > high: no places
  bool counts = false, seen_by_all = false;

  HD void add(const Rows& rows) {
    low = rows.low < low ? rows.low : low;
    high = rows.high > high ? rows.high : high;
    counts = counts || rows.counts;
    seen_by_all = seen_by_all || rows.seen_by_all;
  }
};
enum class Sight { none, part, whole };
/// Returns how much of the keys the queries see, where each sees places less than `span` below its
/// own.
HD inline Sight sight_of(const Rows& queries, const Rows& keys, std::int64_t span) {
  if (!queries.counts || !keys.counts) return Sight::none;
  if (keys.low > keys.high) return Sight::whole;
  const std::int64_t nearest = std::int64_t{queries.low} - keys.high;
  const std::int64_t farthest = std::int64_t{queries.high} - keys.low;
  if (nearest >= 0 && farthest < span) return Sight::whole;
  return keys.seen_by_all || (farthest >= 0 && nearest < span) ? Sight::part : Sight::none;
}

/// Lists the query blocks that list a key block, in the order of the lists. There is a task for
/// each list and key block: it counts its entries together with those of smaller blocks, so that
/// tasks need not meet.
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
      at += __popc(__ballot_sync(cuda::kAllLanes, entry(e) >= 0 && entry(e) < block));
    }
    std::int32_t* const own = begin + list * (blocks + 1) + block;
    if (warp.leader()) own[0] = at;
    for (std::int64_t e = 0; e < total; e += cuda::kWarp) {
      const bool hit = entry(e) == block;
      const unsigned hits = __ballot_sync(cuda::kAllLanes, hit);
      const int earlier = __popc(hits & ((1u << warp.lane) - 1));
      if (hit) inverse[list * total + at + earlier] = row[e + warp.lane];
      at += __popc(hits);
    }
    if (warp.leader() && block == blocks - 1) own[1] = at;
  }
};

/// The walk of each tile of one side, [B H, Q, tiles]: the chunks of its block's list that it sees,
/// first those that are seen whole.
struct ListChunks {
  BlockPlan plan;
  std::int64_t each, tiles;            // chunks and tiles of a block
  const std::int32_t *begin, *listed;  // [begins, Q + 1], begins = 1 or A; [A, total]
  std::int64_t begins;
  bool own_keys;
  const Rows *own, *others;  // [B H, Q each]
  std::int32_t spare;        // a chunk for the rest of the last tile
  std::int32_t* chunks;      // [B H, room(total, Q, 0)]
  Walk* walks;

  /// Numbers before those of a tile of a block, where it lists so many blocks, and those before it
  /// so many together.
  __host__ __device__ std::int64_t room(std::int64_t before, std::int64_t block, std::int64_t tile,
                                        std::int64_t count = 0) const {
    const std::int64_t chunks_before = (before * tiles + count * tile) * each;
    const std::int64_t spare_before = (kTileChunks - 1) * (block * tiles + tile);
    return (chunks_before + spare_before) / kTileChunks * kTileChunks;
  }
  __device__ void operator()(std::int64_t task, const cuda::Warp& warp) const {
    const std::int64_t tile = task % tiles, block_at = task / tiles;
    const std::int64_t group = block_at / plan.row_blocks, block = block_at % plan.row_blocks;
    const std::int64_t head = group % plan.heads, list = plan.lists == 1 ? 0 : head;
    const std::int32_t* const own_begin =
        begin + (begins == 1 ? 0 : list * (plan.row_blocks + 1)) + block;
    const std::int32_t* const blocks = listed + list * plan.total + own_begin[0];
    const std::int64_t listed_blocks = own_begin[1] - own_begin[0];
    const std::int64_t first = group * room(plan.total, plan.row_blocks, 0) +
                               room(own_begin[0], block, tile, listed_blocks);
    const std::int64_t span =
        plan.reach == nullptr ? 0 : 2 * std::int64_t{plan.reach[plan.views == 1 ? 0 : head]} + 1;
    Rows rows;
    for (std::int64_t c = tile * kTileChunks; c < each && c < (tile + 1) * kTileChunks; ++c) {
      rows.add(own[block_at * each + c]);
    }
    const auto sight = [&](std::int64_t i) {
      const std::int32_t other = i < listed_blocks * each ? blocks[i / each] : -1;
      if (other < 0) return std::pair(std::int64_t{-1}, Sight::none);
      const std::int64_t chunk = (group * plan.row_blocks + other) * each + i % each;
      const Sight seen =
          own_keys ? sight_of(others[chunk], rows, span) : sight_of(rows, others[chunk], span);
      const bool counts = rows.counts && others[chunk].counts;
      return std::pair(chunk, !plan.avoid_self ? seen : counts ? Sight::part : Sight::none);
    };
    int count = 0;
    const auto list_those = [&](Sight wanted) {
      for (std::int64_t i = 0; i < listed_blocks * each; i += cuda::kWarp) {
        const auto [chunk, seen] = sight(i + warp.lane);
        const bool hit = seen == wanted;
        const unsigned hits = __ballot_sync(cuda::kAllLanes, hit);
        const int earlier = __popc(hits & ((1u << warp.lane) - 1));
        if (hit) chunks[first + count + earlier] = static_cast<std::int32_t>(chunk);
        count += __popc(hits);
      }
    };
    list_those(Sight::whole);
    const int open = count / kTileChunks;
    list_those(Sight::part);
    const int all = ceil_div(count, kTileChunks);
    if (warp.lane < all * kTileChunks - count) chunks[first + count + warp.lane] = spare;
    if (warp.leader()) walks[task] = {static_cast<std::int32_t>(first), all, open};
  }
};

}  // namespace skytape::attention::block_cuda
