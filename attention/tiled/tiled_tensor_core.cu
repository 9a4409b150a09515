// Tiled attention on tensor cores: the tiles of tensor_core_tiles.hpp, all of them. `P` is what
// multiplies them: a warp its own rows (Products), or four warps theirs (WarpgroupProducts).
// Operands of matrix products are rounded to tf32 or bf16; exponentials, sums, row statistics and
// dropout stay f32. Equation (1) is tiled.hpp's; (2) to (5) are derived in tiled.cpp. Accumulators
// of scores start at the walked row's term of (1) / scale in place of 0, so that an exponent then
// costs one multiply-add; likewise dP starts at -delta where nothing is dropped.
//
// As in tiled.cu nobody else writes what a block owns:
//   forward   owns queries, walks keys: out and lse;
//   backward  owns keys, 128 a block, walks queries: dk and dv from transposed weights;
//             owns queries, walks keys: dq.
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "attention/tiled/head_dropout.hpp"
#include "attention/tiled/tensor_core_tiles.hpp"
#include "attention/tiled/tile_operands.hpp"
#include "attention/tiled/tiled_cuda.hpp"
#include "attention/tiled/tiled_layer.hpp"
#include "attention/tiled/walked_tiles.hpp"
#include "attention/tiled/warpgroup_products.hpp"
#include "tensor/launch/launch.hpp"
#include "tensor/random/philox.hpp"

namespace skytape::attention::tiled_cuda {
namespace {

using namespace tensor_core_tiles;

/// A gaussian's row and column terms depend on q and k as well: total -= sum times own rows, (4),
/// (5).
template <class P> __device__ void subtract_own(const typename P::Own& own,
                                                const float (&sum)[P::kTall][2],
                                                typename P::Total& total) {
#pragma unroll
  for (int f = 0; f < P::kTall; ++f) {
#pragma unroll
    for (int c = 0; c < P::kOuts; ++c) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float entry = P::Core::entry(own[f][c / 2], i / 2, c % 2 * 2 + i % 2);
        total[f][c].x[i / 2][i % 2] -= sum[f][i / 2] * entry;
      }
    }
  }
}
/// factor times own rows times those of `total`.
template <class P> __device__ void dots(const typename P::Own& own, const typename P::Total& total,
                                        float factor, float (&dot)[P::kTall][2]) {
#pragma unroll
  for (int f = 0; f < P::kTall; ++f) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float sum = 0;
#pragma unroll
      for (int c = 0; c < P::kOuts; ++c) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          sum += P::Core::entry(own[f][c / 2], half, c % 2 * 2 + e) * total[f][c].x[half][e];
        }
      }
      dot[f][half] = factor * row_sum(sum);
    }
  }
}
/// of_row(row of the block) for each of this warp's rows that a lane has.
template <class P, class F> __device__ void each_row(float (&value)[P::kTall][2], const F& of_row) {
#pragma unroll
  for (int f = 0; f < P::kTall; ++f) {
#pragma unroll
    for (int half = 0; half < 2; ++half) value[f][half] = of_row(P::rows(f).row_of(half));
  }
}

template <class P> using Operands = TileOperands<typename P::Number>;

/// Rows of a result: f32 by head [B, H, count, D]; or bf16, a head's D entries of a row behind those
/// of the head before, [B, count, of_row]. Both null: it is not wanted.
struct ResultRows {
  float* by_head = nullptr;
  Bf16* side_by_side = nullptr;
  std::int64_t of_row = 0;

  [[nodiscard]] __device__ bool wanted() const {
    return by_head != nullptr || side_by_side != nullptr;
  }
};
/// A row of either kind; null beyond the last.
struct ResultRow {
  float* numbers;
  Bf16* rounded;
  __device__ bool operator==(std::nullptr_t) const {
    return numbers == nullptr && rounded == nullptr;
  }
};
/// To entries c and c + 1 of a row, as far as it has them; of bf16 it has an even number.
__device__ void store_two(float first, float second, const ResultRow& row, int c,
                          std::int64_t width) {
  if (row.rounded == nullptr) {
    tensor_core_tiles::store_two(first, second, row.numbers, c, width);
  } else if (c < width) {
    *reinterpret_cast<std::uint32_t*>(row.rounded + c) = cuda::ptx::round_two_bf16(first, second);
  }
}
/// Stores factor times the sums of a block's own rows of head bh, from `first` of `count` on.
template <class P> __device__ void store(const typename P::Total& total,
                                         const float (&factor)[P::kTall][2], const ResultRows& to,
                                         const TiledPlan& plan, std::int64_t bh, int first,
                                         std::int64_t count) {
  const auto heads = static_cast<unsigned>(plan.heads), head = static_cast<unsigned>(bh);
  const bool rounded = to.side_by_side != nullptr;
  const std::int64_t stride = rounded ? to.of_row : plan.width;
  const std::int64_t begin =
      rounded ? head / heads * count * stride + head % heads * plan.width : bh * count * stride;
  P::store(
      total, factor,
      [&](int row) -> ResultRow {
        if (first + row >= count) return {nullptr, nullptr};
        const std::int64_t at = begin + (first + row) * stride;
        return {rounded ? nullptr : to.by_head + at, rounded ? to.side_by_side + at : nullptr};
      },
      plan.width);
}

/// The arrays that kernels read and write besides operands; null where a pass has none.
struct Results {
  ResultRows out = {}, dq = {}, dk = {}, dv = {};
  float* lse = nullptr;         // [B, H, N], forward of softmax
  const float* mask = nullptr;  // [B, M]
  const float* keep = nullptr;  // [B, H, N, M]
  std::uint32_t* kept = nullptr;
};

// If registers allow it a warp owns two fragments: a read from shared memory and each
// instruction's address then serve twice as many pairs, and one fragment's chain of instructions
// fills the other's waits. The key gradient's two sums allow it for narrow heads alone.
template <Precision kPrecision, int kWidth> using OwnProducts =
    Products<kPrecision, kWidth, kPrecision == Precision::bf16 ? 2 : 1>;
template <Precision kPrecision, int kWidth> using KeyProducts =
    Products<kPrecision, kWidth, kPrecision == Precision::bf16 && kWidth <= 32 ? 2 : 1>;

// Resident blocks of a multiprocessor; one more makes ptxas spill.
template <class P> constexpr int forward_resident(Score score, bool drops) {
  const bool gaussian = score == Score::gaussian;
  if (std::is_same_v<P, WarpgroupProducts>) return 3;
  if (P::kWidth > 32) return 2;
  if (P::kTall > 1) return gaussian && !drops ? 4 : 3;
  return gaussian && drops ? 3 : 4;
}
template <class P> constexpr int key_resident() {
  return P::kTall > 1 ? 3 : P::kWidth > 32 ? 1 : 2;
}
template <class P> constexpr int query_resident(bool drops) {
  if (P::kWidth > 32) return P::kTall > 1 ? 2 : 3;
  if (P::kTall > 1) return 3;
  return drops ? 4 : 5;
}

template <class P, Score kScore, bool kDrops>
__global__ void __launch_bounds__(kThreads, forward_resident<P>(kScore, kDrops))
    forward_kernel(TiledPlan plan, Results result, Operands<P> in) {
  constexpr int kWidth = P::kWidth, kTall = P::kTall;
  auto& shared = Shared<KeyTile<P>>::of_block();
  const LaneMap at;
  const OwnRows task(plan.queries, kTall * kBlockM);
  const std::int64_t bh = task.bh;
  const int i0 = task.first, keys = static_cast<int>(plan.keys);
  constexpr bool softmax = kScore == Score::softmax;
  const float scale = kLog2E * in.scale;
  const HeadDropout<float> dropout(plan, result, bh);
  const auto head = head_of<kWidth>(in, bh);

  typename P::Own q;
  P::load_own(head.q + i0 * kWidth, q);
  KeptOfLane kept[kTall];
  typename P::Total total;
  RunningSoftmax<P> running;
  float row[kTall][2] = {};
  if (!softmax) each_row<P>(row, [&](int i) { return scale * head.shift[i0 + i]; });
  const auto begin = [&](int j0, KeyTile<P>& tile) { tile.begin(head, j0); };
  shared.walk(keys, begin, [&](int j0, const KeyTile<P>& tile) {
    for (int f = 0; f < kTall && kDrops; ++f) {
      kept[f].enter(P::rows(f), i0, j0, [&](int i) { return dropout.decide_word(i, j0, at.t); });
    }
#pragma unroll
    for (int span = 0; span < kBlockN; span += P::kSpan) {
      constexpr int kEights = P::kSpan / kMmaN;
      Accumulator weight[kEights][kTall];
      Weights<P, kEights> rounded;
      const auto column = [&](int n, int) { return of_columns(at, tile.column, span + n); };
      const auto multiply = [&](Accumulator(&score)[kEights][kTall]) {
        start_from(column, score);
        P::before_products(score);
        P::add_scores(at, q, tile.k, span, score);
        P::after_products(score);
      };
      if constexpr (softmax) {
        running.weigh(multiply, scale, weight, rounded, total);
      } else {
        multiply(weight);
#pragma unroll
        for (int i = 0; i < 4 * kEights * kTall; ++i) {
          const int f = i / 4 % kTall, half = i / 2 % 2;
          float& x = weight[i / 4 / kTall][f].x[half][i % 2];
          x = exp2(scale * x + row[f][half]);
        }
      }
      if (!result.out.wanted()) continue;  // the same for all threads
      if constexpr (kDrops) {
        for (int f = 0; f < kTall; ++f) kept[f].drop(span / kMmaK, weight, f);
      }
      if constexpr (kDrops || !softmax) round<P>(weight, rounded);
      P::before_products(total, rounded);
      P::add_weighted(rounded, tile.v, span, total);
      P::after_products(total, rounded);
    }
  });
  float factor[kTall][2];
#pragma unroll
  for (int r = 0; r < 2 * kTall; ++r) {
    const int f = r / 2, half = r % 2, i = i0 + P::rows(f).row_of(half);
    factor[f][half] = softmax ? dropout.scale() * running.inverse(f, half) : dropout.scale();
    if (softmax && at.t == 0 && i < plan.queries) {
      result.lse[bh * plan.queries + i] = running.log_sum(f, half);
    }
  }
  if (result.out.wanted()) store<P>(total, factor, result.out, plan, bh, i0, plan.queries);
}

/// e_ij of (3) from the weight and dout_i.v_j, on top of which -delta_i is where nothing is
/// dropped.
template <bool kDrops>
__device__ float e_of(float weight, float dp, bool keep, float keep_scale, float minus_delta) {
  return weight * (kDrops ? keep_scale * (keep ? dp : 0.0f) + minus_delta : dp);
}

/// dk and dv: own rows are keys, columns of scores are queries.
template <class P, bool kDrops> __global__ void __launch_bounds__(kKeyThreads<P>, key_resident<P>())
    key_gradient_kernel(TiledPlan plan, Results result, Operands<P> in) {
  constexpr int kWidth = P::kWidth, kTall = P::kTall;
  auto& shared = Shared<QueryTile<P>>::of_block();
  const LaneMap at;
  const OwnRows task(plan.keys, kKeyBlockM);
  const std::int64_t bh = task.bh;
  const int j0 = task.first, queries = static_cast<int>(plan.queries);
  const float scale2 = kLog2E * in.scale;
  const HeadDropout<float> dropout(plan, result, bh);
  const float keep_scale = dropout.scale();
  const auto head = head_of<kWidth>(in, bh);

  typename P::Own k, v;
  P::load_own(head.k + j0 * kWidth, k);
  P::load_own(head.v + j0 * kWidth, v);
  float column[kTall][2];
  each_row<P>(column, [&](int j) { return scale2 * head.column[j0 + j]; });
  typename P::Total dk, dv;
  const auto begin = [&](int i0, QueryTile<P>& tile) {
    tile.template begin<kDrops>(head, dropout, i0, j0);
  };
  shared.walk(queries, begin, [&](int, const QueryTile<P>& tile) {
#pragma unroll(kWidth > 32 || kTall > 1 ? 1 : 2)  // where registers are left
    for (int slice = 0; slice < kBlockN; slice += P::kSlice) {
      constexpr int kEights = P::kSlice / kMmaN;
      Accumulator weights[kEights][kTall], dscores[kEights][kTall];
#pragma unroll
      for (int n0 = 0; n0 < kEights; n0 += P::kTogether) {
        Accumulator score[P::kTogether][kTall], dp[P::kTogether][kTall];
        const int first0 = slice + kMmaN * n0;
        const auto minus_delta = [&](int i, int) {
          return of_columns(at, tile.minus_delta, first0 + i);
        };
        start_from([&](int i, int) { return of_columns(at, tile.shift, first0 + i); }, score);
        if constexpr (!kDrops) start_from(minus_delta, dp);
        P::before_products(score, dp);
        P::add_scores(at, k, tile.q, first0, score);
        P::add_scores(at, v, tile.dout, first0, dp);
        P::after_products(score, dp);
#pragma unroll
        for (int m = 0; m < P::kTogether; ++m) {
          const int n = n0 + m, first = slice + kMmaN * n;
          const Accumulator delta = kDrops ? minus_delta(kMmaN * m, 0) : Accumulator{};
#pragma unroll
          for (int f = 0; f < kTall; ++f) {
            unsigned keeps[2] = {~0u, ~0u};  // by the query's e
            for (int e = 0; e < 2 && kDrops; ++e) {
              keeps[e] = tile.kept.of_lane(P::rows(f), first + 2 * at.t + e);
            }
#pragma unroll
            for (int i = 0; i < 4; ++i) {
              const int half = i / 2, e = i % 2;
              const bool keep = (keeps[e] >> (16 * half) & 1u) != 0;
              const float weight = exp2(scale2 * score[m][f].x[half][e] + column[f][half]);
              weights[n][f].x[half][e] = keep ? weight : 0.0f;
              dscores[n][f].x[half][e] =
                  e_of<kDrops>(weight, dp[m][f].x[half][e], keep, keep_scale, delta.x[half][e]);
            }
          }
        }
      }
      Weights<P, kEights> w, dscore;
      round<P>(weights, w);
      round<P>(dscores, dscore);
      P::before_products(dv, dk, w, dscore);
      P::add_weighted(w, tile.dout, slice, dv);
      P::add_weighted(dscore, tile.q, slice, dk);
      P::after_products(dv, dk, w, dscore);
    }
  });
  if (plan.score == Score::gaussian) {
    float sum[kTall][2];  // sum_i e_ij, with the sign that is in q
    dots<P>(v, dv, in.sign * keep_scale, sum);
    subtract_own<P>(k, sum, dk);
  }
  float kept[kTall][2], scaled[kTall][2];
  each_row<P>(kept, [&](int) { return keep_scale; });
  each_row<P>(scaled, [&](int) { return in.scale; });
  store<P>(dk, scaled, result.dk, plan, bh, j0, plan.keys);
  if (result.dv.wanted()) store<P>(dv, kept, result.dv, plan, bh, j0, plan.keys);
}

/// dq: own rows are queries.
template <class P, bool kDrops>
__global__ void __launch_bounds__(kThreads, query_resident<P>(kDrops))
    query_gradient_kernel(TiledPlan plan, Results result, Operands<P> in) {
  constexpr int kWidth = P::kWidth, kTall = P::kTall;
  auto& shared = Shared<KeyTile<P>>::of_block();
  const LaneMap at;
  const OwnRows task(plan.queries, kTall * kBlockM);
  const std::int64_t bh = task.bh;
  const int i0 = task.first, keys = static_cast<int>(plan.keys);
  const float scale2 = kLog2E * in.scale;
  const HeadDropout<float> dropout(plan, result, bh);
  const float keep_scale = dropout.scale();
  const auto head = head_of<kWidth>(in, bh);

  typename P::Own q, dout;
  P::load_own(head.q + i0 * kWidth, q);
  P::load_own(head.dout + i0 * kWidth, dout);
  float shift[kTall][2], minus_delta[kTall][2];
  each_row<P>(shift, [&](int i) { return scale2 * head.shift[i0 + i]; });
  each_row<P>(minus_delta, [&](int i) { return head.minus_delta[i0 + i]; });
  KeptOfLane kept[kTall];
  typename P::Total dq;
  const auto begin = [&](int j0, KeyTile<P>& tile) { tile.begin(head, j0); };
  shared.walk(keys, begin, [&](int j0, const KeyTile<P>& tile) {
    for (int f = 0; f < kTall && kDrops; ++f) {
      kept[f].enter(P::rows(f), i0, j0, [&](int i) { return dropout.decided_word(i, j0, at.t); });
    }
#pragma unroll(kWidth > 32 || kDrops || kTall > 1 ? 1 : 2)  // where registers are left
    for (int slice = 0; slice < kBlockN; slice += P::kSlice) {
      constexpr int kEights = P::kSlice / kMmaN;
      Accumulator dscores[kEights][kTall];
#pragma unroll
      for (int n0 = 0; n0 < kEights; n0 += P::kTogether) {
        Accumulator score[P::kTogether][kTall], dp[P::kTogether][kTall];
        const int first = slice + kMmaN * n0;
        start_from([&](int j, int) { return of_columns(at, tile.column, first + j); }, score);
#pragma unroll
        for (int i = 0; i < 4 * P::kTogether * kTall && !kDrops; ++i) {
          const int f = i / 4 % kTall, half = i / 2 % 2;
          dp[i / 4 / kTall][f].x[half][i % 2] = minus_delta[f][half];
        }
        P::before_products(score, dp);
        P::add_scores(at, q, tile.k, first, score);
        P::add_scores(at, dout, tile.v, first, dp);
        P::after_products(score, dp);
#pragma unroll
        for (int i = 0; i < 4 * P::kTogether * kTall; ++i) {
          const int m = i / 4 / kTall, n = n0 + m, f = i / 4 % kTall, half = i / 2 % 2, e = i % 2;
          const float weight = exp2(scale2 * score[m][f].x[half][e] + shift[f][half]);
          const bool keep = kept[f].keeps(half, slice / kMmaK + n / 2, n % 2, e);
          dscores[n][f].x[half][e] =
              e_of<kDrops>(weight, dp[m][f].x[half][e], keep, keep_scale, minus_delta[f][half]);
        }
      }
      Weights<P, kEights> dscore;
      round<P>(dscores, dscore);
      P::before_products(dq, dscore);
      P::add_weighted(dscore, tile.k, slice, dq);
      P::after_products(dq, dscore);
    }
  });
  if (plan.score == Score::gaussian) {
    float sum[kTall][2];
    each_row<P>(sum, [&](int i) { return head.sums[i0 + i]; });
    subtract_own<P>(q, sum, dq);
  }
  float scaled[kTall][2];
  each_row<P>(scaled, [&](int i) {
    const float scale = in.sign * in.scale;
    if (!plan.mask_queries) return scale;
    const bool inside = i0 + i < plan.queries;
    return inside ? scale * result.mask[bh / plan.heads * plan.queries + i0 + i] : 0.0f;
  });
  store<P>(dq, scaled, result.dq, plan, bh, i0, plan.queries);
}

/// Whose rows the blocks of a kernel own: every head's, kTall kBlockM queries or kKeyBlockM keys
/// each.
enum class Owns { queries, keys };

template <class P, Owns kOwns, class Memory, class Operands>
void start(const char* name, void (*kernel)(TiledPlan, Results, Operands), const TiledPlan& plan,
           const Results& results, const Operands& in) {
  constexpr bool of_keys = kOwns == Owns::keys;
  const std::int64_t blocks = of_keys ? blocks_for(plan, plan.keys, kKeyBlockM)
                                      : blocks_for(plan, plan.queries, P::kTall * kBlockM);
  if (blocks == 0) return;
  constexpr int kBlockThreads = of_keys ? kKeyThreads<P> : kThreads;
  cuda::launch({name, static_cast<unsigned>(blocks), kBlockThreads, sizeof(Memory)}, kernel, plan,
               results, in);
}

template <class P, bool kDrops>
void start_forward(const TiledPlan& plan, const Results& results, const Operands<P>& in) {
  const auto kernel = plan.score == Score::softmax ? forward_kernel<P, Score::softmax, kDrops>
                                                   : forward_kernel<P, Score::gaussian, kDrops>;
  start<P, Owns::queries, Shared<KeyTile<P>>>("tiled attention on tensor cores", kernel, plan,
                                              results, in);
}
template <class P, class K, bool kDrops>
void start_backward(const TiledPlan& plan, const Results& results, const Operands<P>& in) {
  start<K, Owns::keys, Shared<QueryTile<K>>>("key gradient on tensor cores",
                                             key_gradient_kernel<K, kDrops>, plan, results, in);
  start<P, Owns::queries, Shared<KeyTile<P>>>("query gradient on tensor cores",
                                              query_gradient_kernel<P, kDrops>, plan, results, in);
}

/// Calls f.operator()<Own, Keys, kDrops>() with the products of whose owns queries and of who owns
/// keys: where nothing is dropped, kernels spend nothing on dropout.
template <class F> void dispatch(const TiledPlan& plan, const Results& results, const F& f) {
  const auto by_dropout = [&]<class Own, class Keys>() {
    if (results.keep != nullptr || plan.threshold != 0) {
      f.template operator()<Own, Keys, true>();
    } else {
      f.template operator()<Own, Keys, false>();
    }
  };
  tensor_core_tiles::dispatch(plan.width, [&]<Precision kPrecision, int kWidth>() {
    constexpr bool kServed = kPrecision == Precision::bf16 && kWidth == WarpgroupProducts::kWidth;
    if constexpr (kServed && cuda::warpgroup::kCompiled) {
      if (cuda::warpgroup::available()) {
        return by_dropout.template operator()<WarpgroupProducts, WarpgroupProducts>();
      }
    }
    by_dropout
        .template operator()<OwnProducts<kPrecision, kWidth>, KeyProducts<kPrecision, kWidth>>();
  });
}

OperandSources<ByHead, ByHead> sources_of(const Arrays<float>& a) {
  return {.q = {a.q},
          .k = {a.k},
          .v = {a.v},
          .dout = {a.dout},
          .out = {a.dout == nullptr ? nullptr : a.out},
          .lse = a.row,
          .dlse = a.dlse,
          .mask = a.mask};
}

}  // namespace

void tensor_core_forward(const TiledPlan& plan, const Arrays<float>& arrays) {
  const WantedOperands wanted{.v = arrays.v != nullptr, .shift = plan.score == Score::gaussian};
  const Results results{.out = {arrays.out},
                        .lse = arrays.lse,
                        .mask = arrays.mask,
                        .keep = arrays.keep,
                        .kept = arrays.kept};
  dispatch(plan, results, [&]<class P, class, bool kDrops>() {
    const auto operands =
        prepare_operands<P::kNumbers, P::kWidth>(plan, wanted, sources_of(arrays));
    start_forward<P, kDrops>(plan, results, operands.tiles);
  });
}

void tensor_core_backward(const TiledPlan& plan, const Arrays<float>& arrays) {
  const WantedOperands wanted{.dout = true, .shift = true, .sums = plan.score == Score::gaussian};
  const Results results{.dq = {arrays.dq},
                        .dk = {arrays.dk},
                        .dv = {arrays.dv},
                        .mask = arrays.mask,
                        .keep = arrays.keep,
                        .kept = arrays.kept};
  dispatch(plan, results, [&]<class P, class K, bool kDrops>() {
    const auto operands =
        prepare_operands<P::kNumbers, P::kWidth>(plan, wanted, sources_of(arrays));
    start_backward<P, K, kDrops>(plan, results, operands.tiles);
  });
}

}  // namespace skytape::attention::tiled_cuda

namespace skytape::attention {
namespace {

/// Operands of a layer are of bf16, also where somebody changes the precision before backward.
void require_bf16(const char* op) {
  ENSURE(precision(Device::cuda) == Precision::bf16, op, ": expected products at bf16 on cuda");
}

}  // namespace

void tiled_layer_forward_on(Cuda, const TiledPlan& plan, const Tensor& rows,
                            std::span<const Tensor> biases, const Tensor& mask, SavedTiles& saved) {
  using namespace tiled_cuda;
  require_bf16("attention_layer");
  const std::int64_t all = rows.size(1), of_part = all / 3;
  const auto part = [&](int p) {
    return SideBySide<float>{rows.data<float>() + p * of_part, all, biases[p].data<float>()};
  };
  const OperandSources<SideBySide<float>, NoRows> sources{
      .q = part(0), .k = part(1), .v = part(2), .mask = mask.data<float>()};
  const Results results{.out = {nullptr, saved.out.data<Bf16>(), of_part},
                        .lse = saved.lse.data<float>(),
                        .mask = mask.data<float>(),
                        .kept = words(saved.kept)};
  dispatch(plan, results, [&]<class P, class, bool kDrops>() {
    if constexpr (P::kNumbers == Precision::bf16) {
      const auto operands =
          prepare_operands<P::kNumbers, P::kWidth>(plan, WantedOperands{}, sources);
      saved.rows = operands.memory.rows;
      saved.entries = operands.memory.entries;
      start_forward<P, kDrops>(plan, results, operands.tiles);
    }
  });
}

void tiled_layer_backward_on(Cuda, const TiledPlan& plan, const SavedTiles& saved,
                             const Tensor& mask, const Tensor& dout, Tensor& drows) {
  using namespace tiled_cuda;
  require_bf16("the gradient of attention_layer");
  const std::int64_t all = drows.size(1), of_part = all / 3;
  const OperandSources<NoRows, SideBySide<Bf16>> sources{.dout = {dout.data<Bf16>(), of_part},
                                                         .out = {saved.out.data<Bf16>(), of_part},
                                                         .lse = saved.lse.data<float>(),
                                                         .mask = mask.data<float>()};
  const auto part = [&](int p) {
    return ResultRows{nullptr, drows.data<Bf16>() + p * of_part, all};
  };
  const Results results{.dq = part(0),
                        .dk = part(1),
                        .dv = part(2),
                        .mask = mask.data<float>(),
                        .kept = words(saved.kept)};
  dispatch(plan, results, [&]<class P, class K, bool kDrops>() {
    if constexpr (P::kNumbers == Precision::bf16) {
      const WantedOperands of_backward{.q_and_k = false, .v = false, .dout = true, .shift = true};
      const auto made = prepare_operands<P::kNumbers, P::kWidth>(plan, of_backward, sources);
      OperandMemory kept{saved.rows, saved.entries};
      auto tiles = operands_in<typename P::Number, P::kWidth>(kept, plan, WantedOperands{});
      tiles.dout = made.tiles.dout;
      tiles.shift = made.tiles.shift;
      tiles.minus_delta = made.tiles.minus_delta;
      start_backward<P, K, kDrops>(plan, results, tiles);
    }
  });
}

}  // namespace skytape::attention
