// Block attention on tensor cores, at tf32 and bf16: the tiles of tiled/tensor_core_tiles.hpp, driven
// by the block lists. block_attention.cu is the same in fp32.
//
// A tile of 64 own rows lies in one block of slots, which may leave some of them empty. The other
// side is walked as if the listed blocks stood next to one another, 64 slots at a time: blocks of any
// size fill their tiles. Tiles in which nothing counts are passed over. Nobody else writes what a
// block owns, and lists are walked in order, so results repeat bit for bit:
//   forward   owns queries, walks the keys of their list: out and lse;
//   backward  owns keys, walks the queries of the blocks that list them (InvertLists): dk and dv;
//             owns queries, walks the keys of their list: dq.
#include <algorithm>
#include <cstdint>
#include <limits>

#include "attention/blocks/block_attention_plan.hpp"
#include "attention/tiled/tensor_core_tiles.hpp"
#include "tensor/launch/cuda.hpp"
#include "tensor/launch/launch.hpp"

namespace skytape::attention {
namespace {

using namespace tensor_core_tiles;

// Blocks of a multiprocessor: left alone, ptxas spills a few registers to fit one more of them.
template <int kWidth> constexpr int kResident = kWidth <= 32 ? 3 : 2;

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
      at += __popc(__ballot_sync(kAllLanes, entry(e) >= 0 && entry(e) < block));
    }
    std::int32_t* const own = begin + list * (blocks + 1) + block;
    if (warp.leader()) own[0] = at;
    for (std::int64_t e = 0; e < total; e += cuda::kWarp) {
      const bool hit = entry(e) == block;
      const unsigned hits = __ballot_sync(kAllLanes, hit);
      const int earlier = __popc(hits & ((1u << warp.lane) - 1));
      if (hit) inverse[list * total + at + earlier] = row[e + warp.lane];
      at += __popc(hits);
    }
    if (warp.leader() && block == blocks - 1) own[1] = at;
  }
};

struct Arrays {
  const float *q, *k, *v, *mask;             // [B, H, N, D], mask: [B, N]
  const float *delta, *dout;                 // backward, by rows of out
  float *out, *lse, *dq, *dk, *dv;           // by rows of out; lse is read in backward
  const std::int32_t *key_begin, *key_rows;  // InvertLists' begin and inverse
};

/// The tile of slots that a block owns.
struct Task {
  std::int64_t group, block;  // group: b H + h
  int first, rows;            // slots; rows of them that the block has, at most kTile
  __device__ explicit Task(const BlockPlan& plan) {
    const auto tiles = static_cast<unsigned>((plan.block + kTile - 1) / kTile);
    const auto blocks = static_cast<unsigned>(plan.row_blocks);
    const int in_block = static_cast<int>(blockIdx.x % tiles) * kTile;
    const int left = static_cast<int>(plan.block) - in_block;
    block = blockIdx.x / tiles % blocks;
    group = blockIdx.x / tiles / blocks;
    first = static_cast<int>(block * plan.block) + in_block;
    rows = left < kTile ? left : kTile;
  }
  __device__ int slot(int row) const { return row < rows ? first + row : -1; }
};

/// Slots of some blocks, one block after the other.
struct Listed {
  const std::int32_t* blocks;
  int count, size;  // of blocks, of slots in each
  __device__ int slots() const { return count * size; }
  __device__ int slot(int f) const {  // -1: none
    const int block = f < slots() ? blocks[f / size] : -1;
    return block < 0 ? -1 : block * size + f % size;
  }
};

/// What a pair's score depends on beside its product.
struct alignas(16) Query {
  std::int32_t self;   // token whose key counts last (avoid_self); -2, which no key has: none
  std::int32_t place;  // see BlockPlan
  float shift;         // of scores, backward: -lse log2(e), or -inf where all weights vanish
  float delta;         // backward
};
struct alignas(16) Key {
  std::int32_t token;  // -1: none
  std::int32_t place;
  float shift;  // 0, or -inf for padding
};

/// One head of one example: BlockPlan's rules with the addresses found once.
struct Head {
  const std::int32_t *table, *query_place, *key_place;  // null: as in BlockPlan
  const float* mask;                                    // [N]
  const float *lse, *delta;                             // [rows]
  int tokens, reach;
  bool by_slots, avoid_self;
  float scale;  // of scores, base 2

  __device__ Head(const BlockPlan& plan, const Arrays& in, std::int64_t group) {
    const std::int64_t view = plan.views == 1 ? 0 : group % plan.heads;
    const bool placed = plan.key_place != nullptr;
    table = plan.token == nullptr ? nullptr : plan.token + group % plan.tables * plan.slots;
    query_place = placed ? plan.query_place + view * plan.places : nullptr;
    key_place = placed ? plan.key_place + view * plan.places : nullptr;
    mask = in.mask + group / plan.heads * plan.tokens;
    lse = in.lse + group * plan.rows;
    delta = in.delta == nullptr ? nullptr : in.delta + group * plan.rows;
    tokens = static_cast<int>(plan.tokens);
    reach = placed ? plan.reach[view] : 0;
    by_slots = plan.slot != nullptr;
    avoid_self = plan.avoid_self;
    scale = kLog2E * static_cast<float>(plan.scale);
  }

  /// Token in a slot and its row of out; -1 for none.
  __device__ int token_at(int slot) const {
    if (slot < 0) return -1;
    const int token = table != nullptr ? table[slot] : slot;
    return token < tokens ? token : -1;
  }
  __device__ int row_at(int slot) const { return by_slots ? slot : token_at(slot); }

  __device__ Key key(int token) const {
    if (token < 0) return {-1, kSeenByAll, kNothing};
    return {token, key_place == nullptr ? kSeenByAll : key_place[token],
            mask[token] != 0 ? 0.0f : kNothing};
  }
  __device__ Query query(int token) const {
    if (token < 0) return {-2, 0, kNothing, 0};
    return {avoid_self ? token : -2, query_place == nullptr ? 0 : query_place[token], 0, 0};
  }
  /// The same with what backward knows of its row of out.
  __device__ Query query(int token, int row) const {
    Query query = this->query(token);
    if (token < 0) return query;
    query.shift = lse[row] == kNothing ? kNothing : -kLog2E * lse[row];
    query.delta = delta[row];
    return query;
  }

  /// Score of a pair from its product, base 2, plus the query's shift.
  __device__ float score(float product, const Query& query, const Key& key) const {
    float x = scale * product + key.shift;
    const bool seen = key.place == kSeenByAll || BlockPlan::within(query.place - key.place, reach);
    if (!seen) x = kNothing;
    if (key.token == query.self) x = kLog2E * static_cast<float>(kSelfScore);
    return x + query.shift;
  }
};

/// A slot of the other side: the rows of the two arrays that its tiles hold (-1: zeros), and whether
/// it may have a weight at all.
struct KeySlot {
  Key key;
  __device__ KeySlot(const Head& head, int slot) : key(head.key(head.token_at(slot))) {}
  __device__ int first() const { return key.token; }   // of k
  __device__ int second() const { return key.token; }  // of v
  __device__ bool counts(const Head& head) const {     // a padded key may be its own query's
    return key.token >= 0 && (head.avoid_self || key.shift == 0);
  }
};
struct QuerySlot {
  Query query;
  int token, row;
  __device__ QuerySlot(const Head& head, int slot) : token(head.token_at(slot)) {
    row = token < 0 ? -1 : head.row_at(slot);
    query = head.query(token, row);
  }
  __device__ int first() const { return token; }  // of q
  __device__ int second() const { return row; }   // of dout
  __device__ bool counts(const Head&) const { return query.shift != kNothing; }
};

/// Shared memory of a block. While one tile is at work the next one's slots are looked up.
template <class P, class Slot> struct Shared {
  typename P::Tile first, second;
  alignas(Slot) unsigned char slots[2][kTile * sizeof(Slot)];
  __device__ Slot* tile(int i) { return reinterpret_cast<Slot*>(slots[i]); }
};

/// Addresses of a tile's rows: number(row) is a row of source [., width], -1 for none.
template <class T, class Number> struct Picked {
  T* source;
  std::int64_t width;
  Number number;
  __device__ T* operator()(int row) const {
    const int picked = number(row);
    return picked < 0 ? nullptr : source + picked * width;
  }
};
template <class T, class Number>
__device__ Picked<T, Number> picked(T* source, std::int64_t width, const Number& number) {
  return {source, width, number};
}

/// The first 64 slots from f on of which one counts, or the end. Every warp looks, one writes.
template <class Slot>
__device__ int next_tile(const Head& head, const Listed& listed, int f, Slot* tile) {
  for (; f < listed.slots(); f += kTile) {
    bool any = false;
    for (int e = threadIdx.x % cuda::kWarp; e < kTile; e += cuda::kWarp) {
      const Slot slot(head, listed.slot(f + e));
      any = any || slot.counts(head);
      if (threadIdx.x < cuda::kWarp) tile[e] = slot;
    }
    if (__ballot_sync(kAllLanes, any) != 0) break;
  }
  return f;
}

/// Calls f(slots) for each tile of the listed slots, with rows of `first` and `second` [., width] in
/// shared memory.
template <class P, class Slot, class F>
__device__ void walk(const Head& head, const Listed& listed, const float* first,
                     const float* second, std::int64_t width, Shared<P, Slot>& shared, const F& f) {
  int at = next_tile(head, listed, 0, shared.tile(0));
  for (int buffer = 0; at < listed.slots(); buffer = 1 - buffer) {
    const Slot* const tile = shared.tile(buffer);
    __syncthreads();  // everybody is done with the last tile, and knows this one's slots
    P::load_tile(picked(first, width, [&](int row) { return tile[row].first(); }), width,
                 shared.first);
    P::load_tile(picked(second, width, [&](int row) { return tile[row].second(); }), width,
                 shared.second);
    at = next_tile(head, listed, at + kTile, shared.tile(1 - buffer));
    __syncthreads();
    f(tile);
  }
}

/// The slots that a query block's list names.
__device__ Listed listed_keys(const BlockPlan& plan, const Task& task) {
  const std::int32_t begin = plan.begin[task.block];
  return {plan.list(task.group) + begin, plan.begin[task.block + 1] - begin,
          static_cast<int>(plan.block)};
}
/// The slots of the query blocks that list a key block; none where no own key counts.
__device__ Listed listing_queries(const BlockPlan& plan, const Arrays& in, const Task& task,
                                  const Head& head) {
  bool any = false;
  for (int e = threadIdx.x % cuda::kWarp; e < kTile; e += cuda::kWarp) {
    any = any || KeySlot(head, task.slot(e)).counts(head);
  }
  const std::int64_t list = plan.lists == 1 ? 0 : task.group % plan.heads;
  const std::int32_t* const begin = in.key_begin + list * (plan.row_blocks + 1) + task.block;
  return {in.key_rows + list * plan.total + begin[0],
          __ballot_sync(kAllLanes, any) != 0 ? begin[1] - begin[0] : 0,
          static_cast<int>(plan.block)};
}

// Two here: in the registers of three, bf16's would spill.
template <Precision kPrecision, int kWidth> __global__ void __launch_bounds__(kThreads, 2)
    block_forward_kernel(BlockPlan plan, Arrays in) {
  using P = Products<kPrecision, kWidth>;
  auto& shared = cuda::shared<Shared<P, KeySlot>>();
  const Place at;
  const Task task(plan);
  if (task.first >= plan.slots) return;  // beyond the tokens
  const Head head(plan, in, task.group);
  const std::int64_t width = plan.width, tokens_at = task.group * plan.tokens * width;
  const auto own_token = [&](int row) { return head.token_at(task.slot(row)); };
  const auto own_row = [&](int row) { return head.row_at(task.slot(row)); };

  typename P::Left q[P::kSteps];
  P::load_own(at, picked(in.q + tokens_at, width, own_token), width, q);
  const Query query[2] = {head.query(own_token(at.row_of(0))), head.query(own_token(at.row_of(1)))};
  Sums total[P::kOuts];
  float maximum[2] = {kNothing, kNothing}, sum[2] = {0, 0};
  const auto add_keys = [&](const KeySlot* slots) {
    if (at.row >= task.rows) return;  // a warp without rows
    Sums score[kTile / 8];
#pragma unroll
    for (int n = 0; n < kTile / 8; ++n) {
      score[n] = P::scores(at, q, shared.first, 8 * n);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        float& x = score[n].x[e / 2][e % 2];
        x = head.score(x, query[e / 2], slots[8 * n + 2 * at.t + e % 2].key);
      }
    }
    softmax_tile(score, maximum, sum, total);
#pragma unroll
    for (int chunk = 0; chunk < kTile / kChunk; ++chunk) {
      const Sums weights[2] = {score[2 * chunk], score[2 * chunk + 1]};
      P::add_weighted(at, weights, shared.second, kChunk * chunk, total);
    }
  };
  walk(head, listed_keys(plan, task), in.k + tokens_at, in.v + tokens_at, width, shared, add_keys);

  float inverse[2];
  for (int half = 0; half < 2; ++half) {
    inverse[half] = sum[half] > 0 ? 1 / sum[half] : 0.0f;  // 0: no real key
    const int row = own_row(at.row_of(half));
    if (at.t == 0 && row >= 0) {
      in.lse[task.group * plan.rows + row] = log_sum_exp(maximum[half], sum[half]);
    }
  }
  P::store(at, total, inverse, picked(in.out + task.group * plan.rows * width, width, own_row),
           width);
}

/// dk and dv: own rows are keys, columns of scores are queries.
template <Precision kPrecision, int kWidth>
__global__ void __launch_bounds__(kThreads, kResident<kWidth>)
    block_key_gradient_kernel(BlockPlan plan, Arrays in) {
  using P = Products<kPrecision, kWidth>;
  auto& shared = cuda::shared<Shared<P, QuerySlot>>();
  const Place at;
  const Task task(plan);
  if (task.first >= plan.slots) return;  // beyond the tokens
  const Head head(plan, in, task.group);
  const std::int64_t width = plan.width, tokens_at = task.group * plan.tokens * width;
  const std::int64_t rows_at = task.group * plan.rows * width;
  const auto own_token = [&](int row) { return head.token_at(task.slot(row)); };
  const auto own_row = [&](int row) { return head.row_at(task.slot(row)); };

  typename P::Left k[P::kSteps], v[P::kSteps];
  P::load_own(at, picked(in.k + tokens_at, width, own_token), width, k);
  P::load_own(at, picked(in.v + tokens_at, width, own_token), width, v);
  const Key key[2] = {head.key(own_token(at.row_of(0))), head.key(own_token(at.row_of(1)))};
  Sums dk[P::kOuts], dv[P::kOuts];
  const auto add_queries = [&](const QuerySlot* slots) {
    if (at.row >= task.rows) return;  // a warp without rows
#pragma unroll 1
    for (int chunk = 0; chunk < kTile / kChunk; ++chunk) {
      Sums weights[2], dscores[2];
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const int first = kChunk * chunk + 8 * n;
        weights[n] = P::scores(at, k, shared.first, first);
        dscores[n] = P::scores(at, v, shared.second, first);
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const Query query = slots[first + 2 * at.t + e % 2].query;
          float& w = weights[n].x[e / 2][e % 2];
          float& dscore = dscores[n].x[e / 2][e % 2];
          w = exp2(head.score(w, query, key[e / 2]));
          dscore = key[e / 2].token == query.self ? 0.0f : w * (dscore - query.delta);
        }
      }
      P::add_weighted(at, weights, shared.second, kChunk * chunk, dv);
      P::add_weighted(at, dscores, shared.first, kChunk * chunk, dk);
    }
  };
  walk(head, listing_queries(plan, in, task, head), in.q + tokens_at, in.dout + rows_at, width,
       shared, add_queries);

  const float once[2] = {1, 1}, scaled[2] = {kLn2 * head.scale, kLn2 * head.scale};
  P::store(at, dk, scaled, picked(in.dk + rows_at, width, own_row), width);
  P::store(at, dv, once, picked(in.dv + rows_at, width, own_row), width);
}

/// dq: own rows are queries.
template <Precision kPrecision, int kWidth>
__global__ void __launch_bounds__(kThreads, kResident<kWidth>)
    block_query_gradient_kernel(BlockPlan plan, Arrays in) {
  using P = Products<kPrecision, kWidth>;
  auto& shared = cuda::shared<Shared<P, KeySlot>>();
  const Place at;
  const Task task(plan);
  if (task.first >= plan.slots) return;  // beyond the tokens
  const Head head(plan, in, task.group);
  const std::int64_t width = plan.width, tokens_at = task.group * plan.tokens * width;
  const std::int64_t rows_at = task.group * plan.rows * width;
  const auto own_query = [&](int row) { return QuerySlot(head, task.slot(row)); };
  const auto own_row = [&](int row) { return head.row_at(task.slot(row)); };

  typename P::Left q[P::kSteps], dout[P::kSteps];
  const auto own_token = [&](int row) { return head.token_at(task.slot(row)); };
  P::load_own(at, picked(in.q + tokens_at, width, own_token), width, q);
  P::load_own(at, picked(in.dout + rows_at, width, own_row), width, dout);
  const Query query[2] = {own_query(at.row_of(0)).query, own_query(at.row_of(1)).query};
  Sums dq[P::kOuts];
  const auto add_keys = [&](const KeySlot* slots) {
    if (at.row >= task.rows) return;  // a warp without rows
#pragma unroll 1
    for (int chunk = 0; chunk < kTile / kChunk; ++chunk) {
      Sums dscores[2];
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const int first = kChunk * chunk + 8 * n;
        const Sums score = P::scores(at, q, shared.first, first);
        dscores[n] = P::scores(at, dout, shared.second, first);
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const Query& own = query[e / 2];
          const Key key = slots[first + 2 * at.t + e % 2].key;
          const float weight = exp2(head.score(score.x[e / 2][e % 2], own, key));
          float& dscore = dscores[n].x[e / 2][e % 2];
          dscore = key.token == own.self ? 0.0f : weight * (dscore - own.delta);
        }
      }
      P::add_weighted(at, dscores, shared.first, kChunk * chunk, dq);
    }
  };
  walk(head, listed_keys(plan, task), in.k + tokens_at, in.v + tokens_at, width, shared, add_keys);

  const float scaled[2] = {kLn2 * head.scale, kLn2 * head.scale};
  P::store(at, dq, scaled, picked(in.dq + rows_at, width, own_row), width);
}

/// One block per tile of own slots. Each pair of a query and a listed key costs so many products of
/// rows at most; what is padding or out of reach costs less.
void start(const char* name, void (*kernel)(BlockPlan, Arrays), const BlockPlan& plan,
           const Arrays& in, std::int64_t products) {
  const std::int64_t groups = plan.batch * plan.heads;
  const std::int64_t blocks = groups * plan.row_blocks * ((plan.block + kTile - 1) / kTile);
  if (blocks == 0) return;
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  const std::int64_t slots = std::max(plan.total, plan.row_blocks) * plan.block;
  ENSURE(blocks <= kMost && slots <= kMost - kTile, name, ": ", blocks, " tiles or ", slots,
         " listed slots are too many for one launch");
  cuda::computes(products * groups * plan.total * plan.block * plan.block * plan.width, true);
  cuda::launch(name, kernel, static_cast<unsigned>(blocks), kThreads, 0, plan, in);
}

Arrays arrays_of(const BlockInputs& in) {
  Arrays a{};
  a.q = in.q.data<float>();
  a.k = in.k.data<float>();
  a.v = in.v.data<float>();
  a.mask = in.mask.data<float>();
  return a;
}

}  // namespace

void tensor_core_forward(const BlockPlan& plan, const BlockInputs& in, BlockForward& result) {
  Arrays a = arrays_of(in);
  a.out = result.out.data<float>();
  a.lse = result.lse.data<float>();
  tensor_core_tiles::dispatch(plan.width, [&]<Precision kPrecision, int kWidth>() {
    start("block attention on tensor cores", block_forward_kernel<kPrecision, kWidth>, plan, a, 2);
  });
}

void tensor_core_backward(const BlockPlan& plan, const BlockInputs& in, const Tensor& lse,
                          const Tensor& delta, const Tensor& dout, const BlockBackward& by_rows) {
  const Device device = in.q.device();
  const Tensor begin = Tensor::empty({plan.lists, plan.row_blocks + 1}, DType::i32, device);
  const Tensor rows = Tensor::empty({plan.lists, plan.total}, DType::i32, device);
  cuda::warp_rows(plan.lists * plan.row_blocks,
                  InvertLists{plan.row, plan.entries, plan.total, plan.row_blocks,
                              begin.data<std::int32_t>(), rows.data<std::int32_t>()});
  Arrays a = arrays_of(in);
  a.lse = lse.data<float>();
  a.delta = delta.data<float>();
  a.dout = dout.data<float>();
  a.dq = by_rows.dq.data<float>();
  a.dk = by_rows.dk.data<float>();
  a.dv = by_rows.dv.data<float>();
  a.key_begin = begin.data<std::int32_t>();
  a.key_rows = rows.data<std::int32_t>();
  tensor_core_tiles::dispatch(plan.width, [&]<Precision kPrecision, int kWidth>() {
    start("key gradient of blocks on tensor cores", block_key_gradient_kernel<kPrecision, kWidth>,
          plan, a, 4);
    start("query gradient of blocks on tensor cores",
          block_query_gradient_kernel<kPrecision, kWidth>, plan, a, 3);
  });
}

}  // namespace skytape::attention
