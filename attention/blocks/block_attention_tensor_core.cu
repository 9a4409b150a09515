// Block attention on tensor cores, at tf32 and bf16: the tiles of tiled/tensor_core_tiles.hpp,
// driven by the block lists. block_attention.cu is the same in fp32.
//
// As there a block owns a tile of rows of one block of slots, and walks the chunks of the other
// side that count for it (block_operands.hpp): while one tile is used, the next one comes. Nobody
// else writes what it owns, and walks are in the lists' order, so results repeat bit for bit.
#include <cstdint>
#include <type_traits>

#include "attention/blocks/block_attention_plan.hpp"
#include "attention/blocks/block_operands.hpp"
#include "attention/tiled/tensor_core_tiles.hpp"
#include "tensor/launch/cuda.hpp"
#include "tensor/launch/launch.hpp"

namespace skytape::attention {
namespace {

using namespace block_cuda;
using namespace tensor_core_tiles;
static_assert(kBlockM == kTileRows && kBlockN == kTileRows && kMmaK == kChunkRows);

template <Precision kPrecision> using Rounded =
    Operands<typename TensorCore<kPrecision>::Number, float>;

struct Results {
  float *out = nullptr, *lse = nullptr, *dq = nullptr, *dk = nullptr,
        *dv = nullptr;  // by rows of out
};

/// Shared memory of a block.
template <class P, class Fact> struct Stage {
  typename P::Tile first, second;  // k and v, or q and dout
  Fact facts[kBlockN];
  alignas(16) std::int32_t next[kTileChunks];  // chunks of the tile after this one
};
template <class P, class Fact> struct Shared { Stage<P, Fact> stages[2]; };

/// Calls f(tile, whether pairs of it have rules) for each tile of `other` that a block of `own`
/// walks.
template <class P, bool kRules, class Own, class Other, class F>
__device__ void walk(const SlotRows& task, const Own& own, const Other& other, const F& f) {
  using Memory = Shared<P, typename Other::Fact>;
  auto& shared = *reinterpret_cast<Memory*>(cuda::dynamic_shared());
  const Walk walk = own.walks[task.walk];
  const std::int32_t* const chunks = own.chunks + walk.first;
  for (int tile = -1; tile < walk.tiles; ++tile) {  // the first round only fetches
    auto& now = shared.stages[tile & 1];
    __pipeline_wait_prior(0);
    __syncthreads();  // the tile is there, and everybody is done with the last one
    if (const int next = tile + 1; next < walk.tiles) {
      auto& stage = shared.stages[next & 1];
      const auto chunk = [&](int c) { return tile < 0 ? chunks[c] : now.next[c]; };
      begin_chunks<kThreads, kTileChunks, P::kWidth, P::kStride>(chunk, other.first, stage.first.n);
      begin_chunks<kThreads, kTileChunks, P::kWidth, P::kStride>(chunk, other.second,
                                                                 stage.second.n);
      begin_facts<kThreads, kTileChunks>(chunk, other.facts, stage.facts);
      if (threadIdx.x == kThreads - 1 && next + 1 < walk.tiles) {
        __pipeline_memcpy_async(stage.next, chunks + (next + 1) * kTileChunks, sizeof stage.next);
      }
      __pipeline_commit();
    }
    if (tile < 0) continue;
    if (kRules && tile >= walk.open) {
      f(now, std::bool_constant<kRules>());
    } else {
      f(now, std::false_type());
    }
  }
}

// Blocks of a multiprocessor: left alone, ptxas spills registers to fit one more of them. kMore: a
// kernel that needs more registers than others.
template <Precision kPrecision, int kWidth, bool kMore> constexpr int kResident =
    kWidth > 32                               ? 2
    : kPrecision == Precision::bf16 && !kMore ? 4
                                              : 3;

template <Precision kPrecision, int kWidth, bool kRules>
__global__ void __launch_bounds__(kThreads, kResident<kPrecision, kWidth, kRules>)
    block_forward_kernel(BlockPlan plan, Rounded<kPrecision> in, Results result) {
  using P = Products<kPrecision, kWidth>;
  const WarpRows at;
  const SlotRows task(plan, in.block_rows, kBlockM);
  if (task.slot >= plan.slots) return;  // beyond the tokens
  const float scale = kLog2E * static_cast<float>(plan.scale);

  typename P::Own q;
  P::load_own(in.queries.first + task.at * kWidth, q);
  const Query<float> query[2] = {in.queries.facts[task.at + at.row_of(0)],
                                 in.queries.facts[task.at + at.row_of(1)]};
  typename P::Total total;
  RunningSoftmax<P> running;
  walk<P, kRules>(task, in.queries, in.keys, [&](const auto& tile, auto rules) {
    if (at.row >= task.rows) return;  // a warp without rows
#pragma unroll
    for (int span = 0; span < kBlockN; span += P::kSpan) {
      constexpr int kEights = P::kSpan / kMmaN;
      Accumulator weight[kEights][1];
      Weights<P, kEights> rounded;
      const auto multiply = [&](Accumulator(&score)[kEights][1]) {
#pragma unroll
        for (int n = 0; n < kEights; ++n) {
          const int first = span + kMmaN * n;
          score[n][0] = {};
          P::add_scores(at, q, tile.first, first, score[n]);
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            float& x = score[n][0].x[e / 2][e % 2];
            x = score_of<rules.value>(x, scale, query[e / 2], tile.facts[first + 2 * at.t + e % 2]);
          }
        }
      };
      running.weigh(multiply, 1, weight, rounded, total);
      P::add_weighted(rounded, tile.second, span, total);
    }
  });

  const auto lse = task.out_rows(result.lse, plan, in.keys.facts, 1);
  float inverse[1][2];
  for (int half = 0; half < 2; ++half) {
    const bool empty = in.keys.facts[task.at + at.row_of(half)].token < 0;  // or no real key
    inverse[0][half] = empty ? 0.0f : running.inverse(0, half);
    float* const to = at.t == 0 ? lse(at.row_of(half)) : nullptr;
    if (to != nullptr) *to = empty ? kNothing : running.log_sum(0, half);
  }
  P::store(total, inverse, task.out_rows(result.out, plan, in.keys.facts, plan.width), plan.width);
}

/// dk and dv of own keys, or dq of own queries: the other side is columns of scores.
template <Precision kPrecision, int kWidth, bool kRules, bool kOwnKeys>
__global__ void __launch_bounds__(kThreads, kResident<kPrecision, kWidth, kRules && kOwnKeys>)
    block_gradient_kernel(BlockPlan plan, Rounded<kPrecision> in, Results result) {
  using P = Products<kPrecision, kWidth>;
  const WarpRows at;
  const SlotRows task(plan, in.block_rows, kBlockM);
  if (task.slot >= plan.slots) return;  // beyond the tokens
  const auto scale = static_cast<float>(plan.scale);
  const float scale2 = kLog2E * scale;
  const auto& own = either<kOwnKeys>(in.keys, in.queries);
  const auto& other = either<kOwnKeys>(in.queries, in.keys);

  typename P::Own first, second;
  P::load_own(own.first + task.at * kWidth, first);
  P::load_own(own.second + task.at * kWidth, second);
  const typename std::remove_cvref_t<decltype(own)>::Fact own_facts[2] = {
      own.facts[task.at + at.row_of(0)], own.facts[task.at + at.row_of(1)]};
  typename P::Total dfirst, dsecond;
  walk<P, kRules>(task, own, other, [&](const auto& tile, auto rules) {
    if (at.row >= task.rows) return;  // a warp without rows
#pragma unroll 1
    for (int chunk = 0; chunk < kBlockN / kMmaK; ++chunk) {
      Accumulator weights[2], dscores[2];
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const int column = kMmaK * chunk + 8 * n;
        Accumulator score[1], dp[1];
        P::add_scores(at, first, tile.first, column, score);
        P::add_scores(at, second, tile.second, column, dp);
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const auto& walked = tile.facts[column + 2 * at.t + e % 2];
          const Query<float>& query = either<kOwnKeys>(walked, own_facts[e / 2]);
          const Key<float>& key = either<kOwnKeys>(own_facts[e / 2], walked);
          const float s = score[0].x[e / 2][e % 2];
          const float weight = exp2(score_of<rules.value>(s, scale2, query, key) + query.shift);
          const float dscore = weight * (dp[0].x[e / 2][e % 2] - query.delta);
          weights[n].x[e / 2][e % 2] = weight;
          dscores[n].x[e / 2][e % 2] = rules.value && is_self(query, key) ? 0.0f : dscore;
        }
      }
      const auto add = [&](const Accumulator(&two)[2], const typename P::Tile& rows, auto& total) {
        const typename P::FragmentA rounded[1] = {P::Core::rounded_a(two)};
        P::add_weighted(rounded, rows, kMmaK * chunk, total);
      };
      if constexpr (kOwnKeys) add(weights, tile.second, dsecond);
      add(dscores, tile.first, dfirst);
    }
  });

  const float once[1][2] = {{1, 1}}, scaled[1][2] = {{scale, scale}};
  const auto rows = [&](float* x) { return task.out_rows(x, plan, in.keys.facts, plan.width); };
  P::store(dfirst, scaled, rows(kOwnKeys ? result.dk : result.dq), plan.width);
  if constexpr (kOwnKeys) P::store(dsecond, once, rows(result.dv), plan.width);
}

/// Launches one block per tile of own rows.
template <class P, class Operands>
void start(const char* name, void (*kernel)(BlockPlan, Operands, Results), const BlockPlan& plan,
           const Operands& in, const Results& result) {
  using Memory = Shared<P, Query<float>>;
  static_assert(sizeof(Memory) == sizeof(Shared<P, Key<float>>));
  const unsigned blocks = tasks(plan, kBlockM);
  if (blocks == 0) return;
  cuda::launch({name, blocks, kThreads, sizeof(Memory)}, kernel, plan, in, result);
}

/// Calls f.operator()<precision, kWidth, kRules>().
template <class F> void dispatch(const BlockPlan& plan, const F& f) {
  tensor_core_tiles::dispatch(plan.width, [&]<Precision kPrecision, int kWidth>() {
    if (plan.key_place != nullptr || plan.avoid_self) {
      f.template operator()<kPrecision, kWidth, true>();
    } else {
      f.template operator()<kPrecision, kWidth, false>();
    }
  });
}

}  // namespace

void tensor_core_forward(const BlockPlan& plan, const BlockInputs& in, BlockForward& result) {
  dispatch(plan, [&]<Precision kPrecision, int kWidth, bool kRules>() {
    const auto operands =
        prepare_operands<TensorCore<kPrecision>, kWidth>(plan, source_of<float>(in));
    start<Products<kPrecision, kWidth>>(
        "block attention on tensor cores", block_forward_kernel<kPrecision, kWidth, kRules>, plan,
        operands.arrays, {.out = result.out.data<float>(), .lse = result.lse.data<float>()});
  });
}

void tensor_core_backward(const BlockPlan& plan, const BlockInputs& in, const Tensor& lse,
                          const Tensor& delta, const Tensor& dout, const BlockBackward& by_rows) {
  const Results result{.dq = by_rows.dq.data<float>(),
                       .dk = by_rows.dk.data<float>(),
                       .dv = by_rows.dv.data<float>()};
  dispatch(plan, [&]<Precision kPrecision, int kWidth, bool kRules>() {
    using P = Products<kPrecision, kWidth>;
    const auto operands = prepare_operands<TensorCore<kPrecision>, kWidth>(
        plan, source_of<float>(in, lse, delta, dout));
    start<P>("key gradient of blocks on tensor cores",
             block_gradient_kernel<kPrecision, kWidth, kRules, true>, plan, operands.arrays,
             result);
    start<P>("query gradient of blocks on tensor cores",
             block_gradient_kernel<kPrecision, kWidth, kRules, false>, plan, operands.arrays,
             result);
  });
}

}  // namespace skytape::attention
