// Block attention on CUDA in true f32 or f64: the tiles of tiled/register_tiles.hpp, driven by the
// block lists; block_attention_tensor_core.cu has tf32 and bf16.
//
// A block owns a tile of rows of one block of slots, and walks the chunks of the other side that
// count for it (block_operands.hpp). Nobody else writes what it owns, and walks are in the lists'
// order, so results repeat bit for bit:
//   forward   owns queries, walks keys: out and lse;
//   backward  owns keys, walks queries: dk and dv;
//             owns queries, walks keys: dq. Weights are recomputed for both.
#include <cstdint>
#include <type_traits>

#include "attention/blocks/block_attention_plan.hpp"
#include "attention/blocks/block_operands.hpp"
#include "attention/tiled/register_tiles.hpp"
#include "attention/tiled/tiled_cuda.hpp"
#include "tensor/launch/launch.hpp"

namespace skytape::attention {
namespace {

using namespace block_cuda;
using namespace register_tiles;

/// Lists are short and blocks often 64 rows: half as many own rows as tiled.cu has.
template <class T, int kWidth, bool kTight> using Tiles = Tiling<T, kWidth, 8, false, kTight>;

// Blocks of a multiprocessor in forward: left alone, ptxas spills registers to fit one more of
// them.
template <class T, int kWidth> constexpr int kResident = sizeof(T) == 4 && kWidth <= 32 ? 3 : 2;

/// Numbers as they are.
template <class T> struct Unrounded {
  using Number = T;
  __device__ static T rounded(T x) { return x; }
};

template <class T> struct Results {
  T *out = nullptr, *lse = nullptr, *dq = nullptr, *dk = nullptr, *dv = nullptr;  // by rows of out
};

/// Shared memory of a block.
template <class S, class T, class Fact> struct Walked {
  alignas(16) T first[S::kBlockN * S::kStride], second[S::kBlockN * S::kStride];  // k, v or q, dout
  alignas(16) T weights[S::kBlockM * S::kWeightStride];
  Fact facts[S::kBlockN];
};
template <class S, class T> struct ForwardShared {
  alignas(16) T q[S::kBlockM * S::kStride];
  Query<T> query[S::kBlockM];
  Walked<S, T, Key<T>> walked;
  T factor[S::kBlockM];  // of sums
};
template <class S, class T, bool kOwnKeys> struct BackwardShared {
  using Own = std::conditional_t<kOwnKeys, Key<T>, Query<T>>;
  using Other = std::conditional_t<kOwnKeys, Query<T>, Key<T>>;
  alignas(16) T first[S::kBlockM * S::kStride], second[S::kBlockM * S::kStride];  // k, v or q, dout
  Own own[S::kBlockM];
  Walked<S, T, Other> walked;
};

/// The chunks of a task's own rows; rows beyond its block come along.
__device__ auto own_chunks(const SlotRows& task) {
  return [first = task.at / kChunkRows](int c) { return first + c; };
}

/// Begins to copy chunks of kRows rows to shared memory.
template <class S, int kRows, class Chunk, class T>
__device__ void begin_rows(const Chunk& chunk, const T* source, T* target) {
  begin_chunks<S::kThreads, kRows / kChunkRows, S::kWidth, S::kStride>(chunk, source, target);
}

/// Calls f() for each tile of `other` that a block of `own` walks, with its rows in shared memory.
template <class S, class Own, class Other, class Walked, class F>
__device__ void walk(const SlotRows& task, const Own& own, const Other& other, Walked& walked,
                     const F& f) {
  const Walk walk = own.walks[task.walk];
  for (int tile = 0; tile < walk.tiles * (kTileRows / S::kBlockN); ++tile) {
    const std::int32_t* const chunks = own.chunks + walk.first + tile * (S::kBlockN / kChunkRows);
    const auto chunk = [&](int c) { return chunks[c]; };
    __syncthreads();  // everybody is done with the last tile
    begin_rows<S, S::kBlockN>(chunk, other.first, walked.first);
    begin_rows<S, S::kBlockN>(chunk, other.second, walked.second);
    begin_facts<S::kThreads, S::kBlockN / kChunkRows>(chunk, other.facts, walked.facts);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    f();
  }
}

template <class T, int kWidth, bool kTight>
__global__ void __launch_bounds__(Tiles<T, kWidth, kTight>::kThreads, kResident<T, kWidth>)
    block_forward_kernel(BlockPlan plan, Operands<T, T> in, Results<T> result) {
  using S = Tiles<T, kWidth, kTight>;
  auto& shared = *reinterpret_cast<ForwardShared<S, T>*>(cuda::dynamic_shared());
  auto& [k, v, w, key] = shared.walked;
  const auto& query = shared.query;
  const ThreadTile at;
  const SlotRows task(plan, in.block_rows, S::kBlockM);
  if (task.slot >= plan.slots) return;  // beyond the tokens
  const T scale = kLog2E<T> * static_cast<T>(plan.scale);

  begin_rows<S, S::kBlockM>(own_chunks(task), in.queries.first, shared.q);
  begin_facts<S::kThreads, S::kBlockM / kChunkRows>(own_chunks(task), in.queries.facts,
                                                    shared.query);
  WeightedSums<S, T> out;
  SoftmaxRows<S, T> rows;
  walk<S>(task, in.queries, in.keys, shared.walked, [&] {
    T score[S::kThreadM][S::kThreadN];
    products<S>(at, shared.q, k, score);
#pragma unroll
    for (int r = 0; r < S::kThreadM; ++r) {
      const int i = at.own<S>(r);
#pragma unroll
      for (int c = 0; c < S::kThreadN; ++c) {
        const int j = at.tx + kThreadsN * c;
        score[r][c] = score_of<true>(score[r][c], scale, query[i], key[j]);
      }
      rows.add(at, r, score[r], shared.factor);
    }
    store_weights<S>(at, score, w);
    __syncthreads();
    out.multiply(shared.factor);
    out.add(w, v);
  });
#pragma unroll
  for (int r = 0; r < S::kThreadM; ++r) {
    if (in.keys.facts[task.at + at.own<S>(r)].token < 0) rows.clear(r);
  }
  rows.finish(at, shared.factor, task.out_rows(result.lse, plan, in.keys.facts, 1));
  out.multiply(shared.factor);
  out.store(T(1), task.out_rows(result.out, plan, in.keys.facts, plan.width), plan.width);
}

/// dk and dv of own keys, or dq of own queries.
template <class T, int kWidth, bool kOwnKeys, bool kTight>
__global__ void __launch_bounds__(Tiles<T, kWidth, kTight>::kThreads, 2)
    block_gradient_kernel(BlockPlan plan, Operands<T, T> in, Results<T> result) {
  using S = Tiles<T, kWidth, kTight>;
  const auto& own = either<kOwnKeys>(in.keys, in.queries);
  const auto& other = either<kOwnKeys>(in.queries, in.keys);
  auto& shared = *reinterpret_cast<BackwardShared<S, T, kOwnKeys>*>(cuda::dynamic_shared());
  auto& [first, second, w, walked] = shared.walked;
  const auto& queries = either<kOwnKeys>(walked, shared.own);
  const auto& keys = either<kOwnKeys>(shared.own, walked);
  const ThreadTile at;
  const SlotRows task(plan, in.block_rows, S::kBlockM);
  if (task.slot >= plan.slots) return;  // beyond the tokens
  const T scale = static_cast<T>(plan.scale), scale2 = kLog2E<T> * scale;
  begin_rows<S, S::kBlockM>(own_chunks(task), own.first, shared.first);
  begin_rows<S, S::kBlockM>(own_chunks(task), own.second, shared.second);
  begin_facts<S::kThreads, S::kBlockM / kChunkRows>(own_chunks(task), own.facts, shared.own);
  WeightedSums<S, T> dfirst, dsecond;
  walk<S>(task, own, other, shared.walked, [&] {
    T score[S::kThreadM][S::kThreadN], dscore[S::kThreadM][S::kThreadN];
    products<S>(at, shared.first, first, score);
    products<S>(at, shared.second, second, dscore);
#pragma unroll
    for (int r = 0; r < S::kThreadM; ++r) {
      const int i = at.own<S>(r);
#pragma unroll
      for (int c = 0; c < S::kThreadN; ++c) {
        const int j = at.tx + kThreadsN * c;
        const Query<T>& query = queries[kOwnKeys ? j : i];
        const Key<T>& key = keys[kOwnKeys ? i : j];
        to_gradients(score[r][c], dscore[r][c],
                     query.shift + score_of<true>(score[r][c], scale2, query, key), true, T(1),
                     query.delta);
        if (is_self(query, key)) dscore[r][c] = 0;
      }
    }
    if constexpr (kOwnKeys) {
      store_weights<S>(at, score, w);
      __syncthreads();
      dsecond.add(w, second);
      __syncthreads();
    }
    store_weights<S>(at, dscore, w);
    __syncthreads();
    dfirst.add(w, first);
  });
  const auto rows = [&](T* x) { return task.out_rows(x, plan, in.keys.facts, plan.width); };
  dfirst.store(scale, rows(kOwnKeys ? result.dk : result.dq), plan.width);
  if constexpr (kOwnKeys) dsecond.store(T(1), rows(result.dv), plan.width);
}

/// y[token] = sum of x over the token's slots, round by round.
template <class T> struct AddRounds {
  BlockPlan plan;
  const T* x;  // [B, H, P, D]
  T* y;        // [B, H, N, D]
  __device__ void operator()(std::int64_t e) const {
    const std::int64_t c = e % plan.width, t = e / plan.width % plan.tokens;
    const std::int64_t group = e / (plan.width * plan.tokens);
    T sum = 0;
    for (std::int64_t r = 0; r < plan.rounds; ++r) {
      const std::int64_t s = plan.slot[(group * plan.rounds + r) * plan.tokens + t];
      sum += x[(group * plan.rows + s) * plan.width + c];
    }
    y[e] = sum;
  }
};

/// Launches one block per tile of own rows.
template <class Shared, class S, class T>
void launch(void (*kernel)(BlockPlan, Operands<T, T>, Results<T>), const BlockPlan& plan,
            const Operands<T, T>& in, const Results<T>& result) {
  const unsigned blocks = tasks(plan, S::kBlockM);
  if (blocks == 0) return;
  cuda::launch({"block attention", blocks, S::kThreads, sizeof(Shared)}, kernel, plan, in, result);
}

bool on_tensor_cores(const BlockPlan& plan, const BlockInputs& in) {
  return fits_tensor_cores(plan) && tiled_cuda::on_tensor_cores(in.q);
}

}  // namespace

void block_forward_on(Cuda, const BlockPlan& plan, const BlockInputs& in, BlockForward& result) {
  if (on_tensor_cores(plan, in)) {
    tensor_core_forward(plan, in, result);
    return;
  }
  register_tiles::dispatch("block attention", in.q, [&]<class T, int kWidth>() {
    const auto operands = prepare_operands<Unrounded<T>, kWidth>(plan, source_of<T>(in));
    const Results<T> to{.out = result.out.data<T>(), .lse = result.lse.data<T>()};
    dispatch_room<sizeof(ForwardShared<Tiles<T, kWidth, false>, T>)>([&]<bool kTight>() {
      using S = Tiles<T, kWidth, kTight>;
      launch<ForwardShared<S, T>, S>(block_forward_kernel<T, kWidth, kTight>, plan, operands.arrays,
                                     to);
    });
  });
}

void block_backward_on(Cuda, const BlockPlan& plan, const BlockInputs& in, const Tensor& lse,
                       const Tensor& delta, const Tensor& dout, BlockBackward& result) {
  const auto by_rows = [&](const Tensor& x) {  // [B, H, P, D], or x itself: one slot of each token
    return plan.slot == nullptr ? x : empty_like(x, x.shape().with(2, plan.rows));
  };
  const BlockBackward rows{by_rows(result.dq), by_rows(result.dk), by_rows(result.dv)};
  if (on_tensor_cores(plan, in)) {
    tensor_core_backward(plan, in, lse, delta, dout, rows);
  } else {
    register_tiles::dispatch("block attention", in.q, [&]<class T, int kWidth>() {
      const auto operands =
          prepare_operands<Unrounded<T>, kWidth>(plan, source_of<T>(in, lse, delta, dout));
      const Results<T> to{
          .dq = rows.dq.data<T>(), .dk = rows.dk.data<T>(), .dv = rows.dv.data<T>()};
      const auto of_side = [&]<bool kOwnKeys>() {
        using Roomy = BackwardShared<Tiles<T, kWidth, false>, T, kOwnKeys>;
        dispatch_room<sizeof(Roomy)>([&]<bool kTight>() {
          using S = Tiles<T, kWidth, kTight>;
          launch<BackwardShared<S, T, kOwnKeys>, S>(
              block_gradient_kernel<T, kWidth, kOwnKeys, kTight>, plan, operands.arrays, to);
        });
      };
      of_side.template operator()<true>();
      of_side.template operator()<false>();
    });
  }
  if (plan.slot == nullptr) return;
  dispatch_float(in.q.dtype(), [&]<class T>() {
    const auto add = [&](const Tensor& x, const Tensor& y) {
      cuda::map(y.numel(), AddRounds<T>{plan, x.data<T>(), y.data<T>()});
    };
    add(rows.dq, result.dq);
    add(rows.dk, result.dk);
    add(rows.dv, result.dv);
  });
}

}  // namespace skytape::attention
