// Tiled attention on tensor cores: the tiles of tensor_core_tiles.hpp, all of them. Operands of matrix
// products are rounded to tf32 or bf16; exponentials, sums, row statistics and dropout stay f32. A
// product's accumulators start from the walked side's term of (1) over scale, so that a weight's
// exponent takes one multiply-add more; likewise dP starts from -delta where nothing is dropped.
//
// As in tiled.cu nobody else writes what a block owns:
//   forward   owns queries, walks keys: out and lse;
//   backward  owns keys, 128 a block, walks queries: dk and dv from transposed weights;
//             owns queries, walks keys: dq.
#include <cstdint>

#include "attention/tiled/head_dropout.hpp"
#include "attention/tiled/tensor_core_tiles.hpp"
#include "attention/tiled/tile_operands.hpp"
#include "attention/tiled/tiled_cuda.hpp"
#include "attention/tiled/walked_tiles.hpp"
#include "tensor/launch/launch.hpp"
#include "tensor/random/philox.hpp"

namespace skytape::attention::tiled_cuda {
namespace {

using namespace tensor_core_tiles;

/// A gaussian's row and column terms depend on q and k as well: total -= sum times own rows, (4), (5).
template <class P> __device__ void subtract_own(const typename P::FragmentA (&own)[P::kSteps],
                                                const float (&sum)[2],
                                                Accumulator (&total)[P::kOuts]) {
#pragma unroll
  for (int c = 0; c < P::kOuts; ++c) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      total[c].x[i / 2][i % 2] -= sum[i / 2] * P::Core::entry(own[c / 2], i / 2, c % 2 * 2 + i % 2);
    }
  }
}
/// factor times own rows times those of `total`.
template <class P> __device__ void dots(const typename P::FragmentA (&own)[P::kSteps],
                                        const Accumulator (&total)[P::kOuts], float factor,
                                        float (&dot)[2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    dot[half] = 0;
#pragma unroll
    for (int c = 0; c < P::kOuts; ++c) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        dot[half] += P::Core::entry(own[c / 2], half, c % 2 * 2 + e) * total[c].x[half][e];
      }
    }
    dot[half] = factor * row_sum(dot[half]);
  }
}

template <Precision kPrecision> using Operands =
    TileOperands<typename cuda::TensorCore<kPrecision>::Number>;

// Resident blocks of a multiprocessor, of kernels that own queries; one more makes ptxas spill.
template <int kWidth, bool kDropsGaussian> constexpr int kForwardResident =
    kWidth > 32 || kDropsGaussian ? 3 : 4;
template <int kWidth, bool kDrops> constexpr int kQueryResident = kWidth > 32 ? 3 : kDrops ? 4 : 5;

template <Precision kPrecision, int kWidth, Score kScore, bool kDrops>
__global__ void __launch_bounds__(kThreads,
                                  kForwardResident<kWidth, kDrops && kScore == Score::gaussian>)
    forward_kernel(TiledPlan plan, Arrays<float> result, Operands<kPrecision> in) {
  using P = Products<kPrecision, kWidth>;
  auto& shared = *reinterpret_cast<Shared<KeyTile<P>>*>(cuda::dynamic_shared());
  const WarpRows at;
  const Task task(plan.queries, kBlockM);
  const std::int64_t bh = task.bh;
  const int i0 = task.first, keys = static_cast<int>(plan.keys);
  constexpr bool softmax = kScore == Score::softmax;
  const float scale = kLog2E * in.scale;
  const HeadDropout<float> dropout(plan, result, bh);
  const auto head = head_of<kWidth>(in, bh);

  typename P::FragmentA q[P::kSteps];
  P::load_own(at, head.q + i0 * kWidth, q);
  KeptOfLane kept;
  Accumulator total[P::kOuts];
  float maximum[2] = {kNothing, kNothing}, sum[2] = {0, 0}, row[2] = {0, 0};
  for (int half = 0; half < 2; ++half) {
    if (!softmax) row[half] = scale * head.shift[i0 + at.row_of(half)];
  }
  const auto begin = [&](int j0, KeyTile<P>& tile) { tile.begin(head, j0); };
  shared.walk(keys, begin, [&](int j0, const KeyTile<P>& tile) {
    if constexpr (kDrops) {
      kept.enter(at, i0, j0, [&](int i) { return dropout.decide_word(i, j0, at.t); });
    }
    Accumulator score[kBlockN / kMmaN];
#pragma unroll
    for (int n = 0; n < kBlockN / kMmaN; ++n) {
      score[n] = P::scores(at, q, tile.k, kMmaN * n, of_columns(at, tile.column, kMmaN * n));
#pragma unroll
      for (int e = 0; e < 4 && !softmax; ++e) {
        float& x = score[n].x[e / 2][e % 2];
        x = exp2(scale * x + row[e / 2]);
      }
    }
    if constexpr (softmax) softmax_tile(score, scale, maximum, sum, total);
    if (result.out == nullptr) return;  // the same for all threads
#pragma unroll
    for (int slice = 0; slice < kBlockN / kMmaK; ++slice) {
      Accumulator weights[2] = {score[2 * slice], score[2 * slice + 1]};
      if constexpr (kDrops) kept.drop(slice, weights);
      P::add_weighted(at, weights, tile.v, kMmaK * slice, total);
    }
  });
  float factor[2] = {dropout.scale(), dropout.scale()};
  for (int half = 0; half < 2; ++half) {
    if (!softmax) break;
    sum[half] = row_sum(sum[half]);
    factor[half] *= sum[half] > 0 ? 1 / sum[half] : 0.0f;  // 0: no real key
    const std::int64_t i = i0 + at.row_of(half);
    if (at.t == 0 && i < plan.queries) {
      result.lse[bh * plan.queries + i] = log_sum_exp(scale * maximum[half], sum[half]);
    }
  }
  if (result.out != nullptr) {
    P::store(at, total, factor, rows_of(result.out, plan, bh, i0, plan.queries), plan.width);
  }
}

/// e_ij of (3) from the weight and dout_i.v_j, on top of which -delta_i is where nothing is dropped.
template <bool kDrops>
__device__ float e_of(float weight, float dp, float factor, float minus_delta) {
  return weight * (kDrops ? dp * factor + minus_delta : dp);
}

/// dk and dv: own rows are keys, columns of scores are queries.
template <Precision kPrecision, int kWidth, bool kDrops>
__global__ void __launch_bounds__(kKeyThreads, kWidth <= 32 ? 2 : 1)
    key_gradient_kernel(TiledPlan plan, Arrays<float> result, Operands<kPrecision> in) {
  using P = Products<kPrecision, kWidth>;
  auto& shared = *reinterpret_cast<Shared<QueryTile<P>>*>(cuda::dynamic_shared());
  const WarpRows at;
  const Task task(plan.keys, kKeyBlockM);
  const std::int64_t bh = task.bh;
  const int j0 = task.first, queries = static_cast<int>(plan.queries);
  const float scale2 = kLog2E * in.scale;
  const HeadDropout<float> dropout(plan, result, bh);
  const float keep_scale = dropout.scale();
  const auto head = head_of<kWidth>(in, bh);

  typename P::FragmentA k[P::kSteps], v[P::kSteps];
  P::load_own(at, head.k + j0 * kWidth, k);
  P::load_own(at, head.v + j0 * kWidth, v);
  const float column[2] = {scale2 * head.column[j0 + at.row_of(0)],
                           scale2 * head.column[j0 + at.row_of(1)]};
  Accumulator dk[P::kOuts], dv[P::kOuts];
  const auto begin = [&](int i0, QueryTile<P>& tile) {
    tile.template begin<kDrops>(head, dropout, i0, j0);
  };
  shared.walk(queries, begin, [&](int, const QueryTile<P>& tile) {
#pragma unroll(kWidth > 32 ? 1 : 2)  // where registers are left
    for (int slice = 0; slice < kBlockN / kMmaK; ++slice) {
      Accumulator weights[2], dscores[2];
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const int first = kMmaK * slice + kMmaN * n;
        const Accumulator minus_delta = of_columns(at, tile.minus_delta, first);
        weights[n] = P::scores(at, k, tile.q, first, of_columns(at, tile.shift, first));
        dscores[n] = P::scores(at, v, tile.dout, first, kDrops ? Accumulator{} : minus_delta);
        unsigned keeps[2] = {~0u, ~0u};  // by the query's e
        for (int e = 0; e < 2 && kDrops; ++e) {
          keeps[e] = tile.kept.of_lane(at, first + 2 * at.t + e);
        }
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int half = e / 2;
          float& w = weights[n].x[half][e % 2];
          float& dscore = dscores[n].x[half][e % 2];
          const bool keep = (keeps[e % 2] >> (16 * half) & 1u) != 0;
          const float weight = exp2(scale2 * w + column[half]);
          const float factor = !kDrops ? 1.0f : keep ? keep_scale : 0.0f;
          w = weight * factor;
          dscore = e_of<kDrops>(weight, dscore, factor, minus_delta.x[half][e % 2]);
        }
      }
      P::add_weighted(at, weights, tile.dout, kMmaK * slice, dv);
      P::add_weighted(at, dscores, tile.q, kMmaK * slice, dk);
    }
  });
  if (plan.score == Score::gaussian) {
    float sum[2];  // sum_i e_ij, with the sign that is in q
    dots<P>(v, dv, in.sign, sum);
    subtract_own<P>(k, sum, dk);
  }
  const float once[2] = {1, 1}, scaled[2] = {in.scale, in.scale};
  P::store(at, dk, scaled, rows_of(result.dk, plan, bh, j0, plan.keys), plan.width);
  if (result.dv != nullptr) {
    P::store(at, dv, once, rows_of(result.dv, plan, bh, j0, plan.keys), plan.width);
  }
}

/// dq: own rows are queries.
template <Precision kPrecision, int kWidth, bool kDrops>
__global__ void __launch_bounds__(kThreads, kQueryResident<kWidth, kDrops>)
    query_gradient_kernel(TiledPlan plan, Arrays<float> result, Operands<kPrecision> in) {
  using P = Products<kPrecision, kWidth>;
  auto& shared = *reinterpret_cast<Shared<KeyTile<P>>*>(cuda::dynamic_shared());
  const WarpRows at;
  const Task task(plan.queries, kBlockM);
  const std::int64_t bh = task.bh;
  const int i0 = task.first, keys = static_cast<int>(plan.keys);
  const float scale2 = kLog2E * in.scale;
  const HeadDropout<float> dropout(plan, result, bh);
  const float keep_scale = dropout.scale();
  const auto head = head_of<kWidth>(in, bh);

  typename P::FragmentA q[P::kSteps], dout[P::kSteps];
  P::load_own(at, head.q + i0 * kWidth, q);
  P::load_own(at, head.dout + i0 * kWidth, dout);
  float shift[2];
  Accumulator minus_delta;
  for (int half = 0; half < 2; ++half) {
    shift[half] = scale2 * head.shift[i0 + at.row_of(half)];
    minus_delta.x[half][0] = minus_delta.x[half][1] = head.minus_delta[i0 + at.row_of(half)];
  }
  KeptOfLane kept;
  Accumulator dq[P::kOuts];
  const auto begin = [&](int j0, KeyTile<P>& tile) { tile.begin(head, j0); };
  shared.walk(keys, begin, [&](int j0, const KeyTile<P>& tile) {
    if constexpr (kDrops) {
      kept.enter(at, i0, j0, [&](int i) { return dropout.decided_word(i, j0, at.t); });
    }
#pragma unroll(kWidth > 32 || kDrops ? 1 : 2)  // where registers are left
    for (int slice = 0; slice < kBlockN / kMmaK; ++slice) {
      Accumulator dscores[2];
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const int first = kMmaK * slice + kMmaN * n;
        const Accumulator score =
            P::scores(at, q, tile.k, first, of_columns(at, tile.column, first));
        dscores[n] = P::scores(at, dout, tile.v, first, kDrops ? Accumulator{} : minus_delta);
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int half = e / 2;
          const float weight = exp2(scale2 * score.x[half][e % 2] + shift[half]);
          float& dscore = dscores[n].x[half][e % 2];
          const float factor = kept.keeps(half, slice, n, e % 2) ? keep_scale : 0.0f;
          dscore = e_of<kDrops>(weight, dscore, factor, minus_delta.x[half][0]);
        }
      }
      P::add_weighted(at, dscores, tile.k, kMmaK * slice, dq);
    }
  });
  if (plan.score == Score::gaussian) {
    const float sum[2] = {head.sums[i0 + at.row_of(0)], head.sums[i0 + at.row_of(1)]};
    subtract_own<P>(q, sum, dq);
  }
  float scaled[2] = {in.sign * in.scale, in.sign * in.scale};
  for (int half = 0; half < 2 && plan.mask_queries; ++half) {
    const int i = i0 + at.row_of(half);
    scaled[half] *= i < plan.queries ? result.mask[bh / plan.heads * plan.queries + i] : 0.0f;
  }
  P::store(at, dq, scaled, rows_of(result.dq, plan, bh, i0, plan.queries), plan.width);
}

/// A block per `own` rows of every head.
template <class Memory, class Operands>
void start(const char* name, void (*kernel)(TiledPlan, Arrays<float>, Operands),
           const TiledPlan& plan, const Arrays<float>& arrays, const Operands& in,
           std::int64_t rows, int own, std::int64_t products) {
  const std::int64_t blocks = blocks_for(plan, rows, own);
  if (blocks == 0) return;
  Arrays<float> result{};  // the operands were made from the rest
  result.mask = arrays.mask;
  result.keep = arrays.keep;
  result.kept = arrays.kept;
  result.out = arrays.out;
  result.lse = arrays.lse;
  if (own == kKeyBlockM) {
    result.dk = arrays.dk;
    result.dv = arrays.dv;
  } else {
    result.dq = arrays.dq;
  }
  const Work work{.multiply_adds = products * multiply_adds_of_product(plan), .product = true};
  const auto threads = static_cast<unsigned>(kThreads * own / kBlockM);
  cuda::launch({name, static_cast<unsigned>(blocks), threads, sizeof(Memory), work}, kernel, plan,
               result, in);
}

/// Calls f.operator()<precision, kWidth, kDrops>(): where nothing is dropped, kernels spend nothing on
/// dropout.
template <class F> void dispatch(const TiledPlan& plan, const Arrays<float>& arrays, const F& f) {
  tensor_core_tiles::dispatch(plan.width, [&]<Precision kPrecision, int kWidth>() {
    if (arrays.keep != nullptr || plan.threshold != 0) {
      f.template operator()<kPrecision, kWidth, true>();
    } else {
      f.template operator()<kPrecision, kWidth, false>();
    }
  });
}

}  // namespace

void tensor_core_forward(const TiledPlan& plan, const Arrays<float>& arrays) {
  dispatch(plan, arrays, [&]<Precision kPrecision, int kWidth, bool kDrops>() {
    using P = Products<kPrecision, kWidth>;
    const auto operands = prepare_operands<kPrecision, kWidth>(plan, arrays);
    const auto kernel = plan.score == Score::softmax
                            ? forward_kernel<kPrecision, kWidth, Score::softmax, kDrops>
                            : forward_kernel<kPrecision, kWidth, Score::gaussian, kDrops>;
    start<Shared<KeyTile<P>>>("tiled attention on tensor cores", kernel, plan, arrays,
                              operands.tiles, plan.queries, kBlockM, arrays.out == nullptr ? 1 : 2);
  });
}

void tensor_core_backward(const TiledPlan& plan, const Arrays<float>& arrays) {
  dispatch(plan, arrays, [&]<Precision kPrecision, int kWidth, bool kDrops>() {
    using P = Products<kPrecision, kWidth>;
    const auto operands = prepare_operands<kPrecision, kWidth>(plan, arrays);
    start<Shared<QueryTile<P>>>("key gradient on tensor cores",
                                key_gradient_kernel<kPrecision, kWidth, kDrops>, plan, arrays,
                                operands.tiles, plan.keys, kKeyBlockM, 4);
    start<Shared<KeyTile<P>>>("query gradient on tensor cores",
                              query_gradient_kernel<kPrecision, kWidth, kDrops>, plan, arrays,
                              operands.tiles, plan.queries, kBlockM, 3);
  });
}

}  // namespace skytape::attention::tiled_cuda
