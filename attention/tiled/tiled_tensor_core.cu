// Tiled attention on tensor cores: the tiles of tensor_core_tiles.hpp, all of them. Operands of matrix
// products are rounded to tf32 or bf16; exponentials, sums, row statistics and dropout stay f32.
//
// As in tiled.cu nobody else writes what a block owns:
//   forward   owns queries, walks keys: out and lse;
//   backward  owns keys, 128 a block, walks queries: dk and dv from transposed weights;
//             owns queries, walks keys: dq.
#include <cstdint>

#include "attention/tiled/tensor_core_tiles.hpp"
#include "attention/tiled/tile_operands.hpp"
#include "attention/tiled/tiled_cuda.hpp"
#include "tensor/launch/launch.hpp"
#include "tensor/random/philox.hpp"

namespace skytape::attention::tiled_cuda {
namespace {

using namespace tensor_core_tiles;

static_assert(philox::kChunk == 2 * kTile && kChunk == philox::kLanes);

// Who owns keys owns a whole chunk of them, in eight warps: one counter decides about all of its keys.
inline constexpr int kKeys = philox::kChunk, kKeyThreads = kThreads * kKeys / kTile;

template <Precision kPrecision> using Operands =
    TileOperands<typename cuda::TensorCore<kPrecision>::Number>;

/// Shared memory of a block: while one tile is used, the next one comes.
template <class P> struct Shared {
  struct Stage {
    typename P::Tile first, second;                // k and v, or q and dout
    alignas(16) float column[kTile];               // of keys
    alignas(16) float shift[kTile], delta[kTile];  // of queries, backward
  } stages[2];
  // Dropout: bit r of [query, lane] keeps key 16 r + lane of a chunk.
  std::uint8_t kept[2][kTile * philox::kLanes];

  /// Of the tile that begins at row `first`.
  __device__ Stage& stage(int first) { return stages[first / kTile % 2]; }
};

/// Rows of an array [B, H, count, D] that belong to a head, from `first` on; zeros where it is null.
template <class T> __device__ Consecutive<T> rows_of(T* source, const TiledPlan& plan,
                                                     std::int64_t bh, std::int64_t first,
                                                     std::int64_t count) {
  T* const head = source == nullptr ? nullptr : source + bh * count * plan.width;
  return {head, first, count, plan.width};
}

/// Dropout of one head's weights. Decisions about 64 queries and a chunk of 128 keys lie in shared
/// memory: bit r of [query, lane] says whether key 16 r + lane of the chunk is kept, about which one
/// counter decides (philox.hpp, "16 bits per element").
class HeadDropout {
 public:
  __device__ HeadDropout(const TiledPlan& plan, const float* keep, std::int64_t bh)
      : plan_(plan),
        given_(keep == nullptr ? nullptr : keep + bh * plan.queries * plan.keys),
        first_row_((plan.first_head + bh) * plan.row_count),
        step_(philox::step_of(plan.step)) {}

  [[nodiscard]] __device__ bool drops() const { return given_ != nullptr || plan_.threshold != 0; }
  /// Of kept weights.
  [[nodiscard]] __device__ float scale() const { return static_cast<float>(plan_.keep_scale); }

  /// Decides about queries from i0 and the keys of a chunk, by all threads of a block.
  template <int kBlock = kThreads>
  __device__ void decide(int i0, int j0, std::uint8_t* kept) const {
    if (!drops()) return;
    const std::int64_t counters = plan_.row_stride / kRuns;  // of a row: whole chunks
    const int row = threadIdx.x / philox::kLanes, lane = threadIdx.x % philox::kLanes;
    auto counter =
        static_cast<std::uint64_t>((first_row_ + i0 + row) * counters + j0 / kRuns + lane);
    for (int e = threadIdx.x; e < kTile * philox::kLanes; e += kBlock) {
      kept[e] = static_cast<std::uint8_t>(
          given_ == nullptr ? drawn(counter) : as_given(i0 + e / philox::kLanes, j0 + lane));
      counter += static_cast<std::uint64_t>(counters * (kBlock / philox::kLanes));
    }
  }

  using Kept = std::uint8_t[2][kTile * philox::kLanes];  // of a chunk and the next one

  /// For who walks the keys in order: decides at the first tile of each chunk.
  __device__ void decide_in_order(int i0, int j0, Kept& kept) const {
    if (j0 % philox::kChunk == 0) decide(i0, j0, kept[j0 / philox::kChunk % 2]);
  }
  /// What that left of a lane's keys in the tile at j0: bit 16 n + 8 e + c is of key
  /// 16 c + 8 n + 2 t + e.
  __device__ unsigned keys_kept(const Kept& kept, int j0, int row, int t) const {
    if (!drops()) return ~0u;
    const std::uint8_t* const lanes = kept[j0 / philox::kChunk % 2] + row * philox::kLanes + 2 * t;
    const auto two = [&](int first) -> unsigned {
      return *reinterpret_cast<const std::uint16_t*>(lanes + first);
    };
    return (two(0) | two(8) << 16) >> (j0 % philox::kChunk / philox::kLanes);
  }
  __device__ static bool keeps(unsigned bits, int c, int n, int e) {
    return (bits >> (16 * n + 8 * e + c) & 1u) != 0;
  }
  /// For who owns a chunk of keys: whether one of them is kept.
  __device__ bool keeps(const std::uint8_t* kept, int query, int key) const {
    return !drops() ||
           (kept[query * philox::kLanes + key % philox::kLanes] >> (key / philox::kLanes) & 1u) !=
               0;
  }

 private:
  /// Bits of the keys that a counter decides about.
  __device__ unsigned drawn(std::uint64_t counter) const {
    const philox::Words words = philox::draw(plan_.key, counter, step_);
    const std::uint32_t threshold = plan_.threshold << 16;  // below 2^16
    unsigned bits = 0;
#pragma unroll
    for (int r = 0; r < kRuns; ++r) {
      const std::uint32_t word = words.w[r / 2];
      bits |= ((r % 2 == 0 ? word << 16 : word) >= threshold ? 1u : 0u) << r;
    }
    return bits;
  }
  __device__ unsigned as_given(std::int64_t i, std::int64_t first) const {
    unsigned bits = 0;
    for (int r = 0; r < kRuns; ++r) {
      const std::int64_t j = first + r * philox::kLanes;
      const bool keeps = i < plan_.queries && j < plan_.keys && given_[i * plan_.keys + j] != 0;
      bits |= (keeps ? 1u : 0u) << r;
    }
    return bits;
  }

  static constexpr int kRuns = philox::kChunk / philox::kLanes;  // keys that share a counter

  const TiledPlan& plan_;
  const float* given_;      // [N, M], null: drawn
  std::int64_t first_row_;  // of the head, among all rows of weights
  std::uint64_t step_;
};

/// The block's head and its first own row.
struct Task {
  std::int64_t bh;
  int first;
  __device__ Task(std::int64_t rows, int own) {
    const auto blocks = static_cast<unsigned>((rows + own - 1) / own);
    bh = blockIdx.x / blocks;
    first = static_cast<int>(blockIdx.x % blocks) * own;
  }
};

// Blocks of a multiprocessor: left alone, ptxas spills registers to fit one more of them.
template <int kWidth> constexpr int kResident = kWidth > 32 ? 2 : 4;

template <Precision kPrecision, int kWidth, Score kScore>
__global__ void __launch_bounds__(kThreads, kResident<kWidth>)
    forward_kernel(TiledPlan plan, Arrays<float> result, Operands<kPrecision> in) {
  using P = Products<kPrecision, kWidth>;
  auto& shared = *reinterpret_cast<Shared<P>*>(cuda::dynamic_shared());
  const Place at;
  const Task task(plan.queries, kTile);
  const std::int64_t bh = task.bh;
  const int i0 = task.first, keys = static_cast<int>(plan.keys);
  const std::int64_t keys_at = bh * in.keys, queries_at = bh * in.queries;
  constexpr bool softmax = kScore == Score::softmax;
  const float scale = kLog2E * static_cast<float>(plan.scale);
  const HeadDropout dropout(plan, result.keep, bh);

  typename P::Left q[P::kSteps];
  P::load_own(at, in.q + (queries_at + i0) * kWidth, q);
  Sums total[P::kOuts];
  float maximum[2] = {kNothing, kNothing}, sum[2] = {0, 0}, row[2] = {0, 0};
  for (int half = 0; half < 2; ++half) {
    if (!softmax) row[half] = in.shift[queries_at + i0 + at.row_of(half)];
  }
  for (int j0 = -kTile; j0 < keys; j0 += kTile) {  // the first round only fetches
    __pipeline_wait_prior(0);
    __syncthreads();  // the tile is there, and everybody is done with the last one
    if (const int next = j0 + kTile; next < keys) {
      auto& stage = shared.stage(next);
      P::begin_tile(in.k + (keys_at + next) * kWidth, stage.first);
      if (in.v != nullptr) P::begin_tile(in.v + (keys_at + next) * kWidth, stage.second);
      begin_entries(in.column + keys_at + next, stage.column);
      __pipeline_commit();
      dropout.decide_in_order(i0, next, shared.kept);
    }
    if (j0 < 0) continue;
    const auto& tile = shared.stage(j0);
    Sums score[kTile / 8];
#pragma unroll
    for (int n = 0; n < kTile / 8; ++n) {
      score[n] = P::scores(at, q, tile.first, 8 * n);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& x = score[n].x[half][e];
          x = scale * x + tile.column[8 * n + 2 * at.t + e];
          if (!softmax) x = exp2(x + row[half]);
        }
      }
    }
    if constexpr (softmax) softmax_tile(score, maximum, sum, total);
    if (result.out == nullptr) continue;  // the same for all threads
    const unsigned kept[2] = {dropout.keys_kept(shared.kept, j0, at.row_of(0), at.t),
                              dropout.keys_kept(shared.kept, j0, at.row_of(1), at.t)};
#pragma unroll
    for (int chunk = 0; chunk < kTile / kChunk; ++chunk) {
      Sums weights[2] = {score[2 * chunk], score[2 * chunk + 1]};
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int n = i / 4, half = i / 2 % 2, e = i % 2;
        if (!HeadDropout::keeps(kept[half], chunk, n, e)) weights[n].x[half][e] = 0;
      }
      P::add_weighted(at, weights, tile.second, kChunk * chunk, total);
    }
  }
  float factor[2] = {dropout.scale(), dropout.scale()};
  for (int half = 0; half < 2; ++half) {
    if (!softmax) break;
    factor[half] *= sum[half] > 0 ? 1 / sum[half] : 0.0f;  // 0: no real key
    const std::int64_t i = i0 + at.row_of(half);
    if (at.t == 0 && i < plan.queries) {
      result.lse[bh * plan.queries + i] = log_sum_exp(maximum[half], sum[half]);
    }
  }
  if (result.out != nullptr) {
    P::store(at, total, factor, rows_of(result.out, plan, bh, i0, plan.queries), plan.width);
  }
}

/// dk and dv: own rows are keys, columns of scores are queries.
template <Precision kPrecision, int kWidth>
__global__ void __launch_bounds__(kKeyThreads, kWidth <= 32 ? 2 : 1)
    key_gradient_kernel(TiledPlan plan, Arrays<float> result, Operands<kPrecision> in) {
  using P = Products<kPrecision, kWidth>;
  auto& shared = *reinterpret_cast<Shared<P>*>(cuda::dynamic_shared());
  const Place at;
  const Task task(plan.keys, kKeys);
  const std::int64_t bh = task.bh;
  const int j0 = task.first, queries = static_cast<int>(plan.queries);
  const std::int64_t keys_at = bh * in.keys + j0, queries_at = bh * in.queries;
  const auto scale = static_cast<float>(plan.scale);
  const float scale2 = kLog2E * scale;
  const HeadDropout dropout(plan, result.keep, bh);
  const float keep_scale = dropout.scale();

  typename P::Left k[P::kSteps], v[P::kSteps];
  P::load_own(at, in.k + keys_at * kWidth, k);
  P::load_own(at, in.v + keys_at * kWidth, v);
  const float column[2] = {in.column[keys_at + at.row_of(0)], in.column[keys_at + at.row_of(1)]};
  Sums dk[P::kOuts], dv[P::kOuts];
  for (int i0 = -kTile; i0 < queries; i0 += kTile) {  // the first round only fetches
    __pipeline_wait_prior(0);
    __syncthreads();  // the queries are there, and everybody is done with the last ones
    if (const int next = i0 + kTile; next < queries) {
      auto& stage = shared.stage(next);
      P::template begin_tile<kKeyThreads>(in.q + (queries_at + next) * kWidth, stage.first);
      P::template begin_tile<kKeyThreads>(in.dout + (queries_at + next) * kWidth, stage.second);
      begin_entries(in.shift + queries_at + next, stage.shift);
      begin_entries(in.delta + queries_at + next, stage.delta);
      __pipeline_commit();
      dropout.decide<kKeyThreads>(next, j0, shared.kept[next / kTile % 2]);
    }
    if (i0 < 0) continue;
    const auto& tile = shared.stage(i0);
    const std::uint8_t* const kept = shared.kept[i0 / kTile % 2];
#pragma unroll 1
    for (int chunk = 0; chunk < kTile / kChunk; ++chunk) {
      Sums weights[2], dscores[2];
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const int first = kChunk * chunk + 8 * n;
        weights[n] = P::scores(at, k, tile.first, first);
        dscores[n] = P::scores(at, v, tile.second, first);
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int half = e / 2, query = first + 2 * at.t + e % 2;
          float& w = weights[n].x[half][e % 2];
          float& dscore = dscores[n].x[half][e % 2];
          const float weight = exp2(scale2 * w + tile.shift[query] + column[half]);
          const float factor = dropout.keeps(kept, query, at.row_of(half)) ? keep_scale : 0.0f;
          w = weight * factor;
          dscore = weight * (dscore * factor - tile.delta[query]);
        }
      }
      P::add_weighted(at, weights, tile.second, kChunk * chunk, dv);
      P::add_weighted(at, dscores, tile.first, kChunk * chunk, dk);
    }
  }
  const float once[2] = {1, 1}, scaled[2] = {scale, scale};
  P::store(at, dk, scaled, rows_of(result.dk, plan, bh, j0, plan.keys), plan.width);
  if (result.dv != nullptr) {
    P::store(at, dv, once, rows_of(result.dv, plan, bh, j0, plan.keys), plan.width);
  }
}

/// dq: own rows are queries.
// Four blocks of narrow heads on a multiprocessor: for a fifth, the compiler would spill registers.
template <Precision kPrecision, int kWidth>
__global__ void __launch_bounds__(kThreads, kWidth <= 32 ? 4 : 0)
    query_gradient_kernel(TiledPlan plan, Arrays<float> result, Operands<kPrecision> in) {
  using P = Products<kPrecision, kWidth>;
  auto& shared = *reinterpret_cast<Shared<P>*>(cuda::dynamic_shared());
  const Place at;
  const Task task(plan.queries, kTile);
  const std::int64_t bh = task.bh;
  const int i0 = task.first, keys = static_cast<int>(plan.keys);
  const std::int64_t keys_at = bh * in.keys, queries_at = bh * in.queries + i0;
  const auto scale = static_cast<float>(plan.scale);
  const float scale2 = kLog2E * scale;
  const HeadDropout dropout(plan, result.keep, bh);
  const float keep_scale = dropout.scale();

  typename P::Left q[P::kSteps], dout[P::kSteps];
  P::load_own(at, in.q + queries_at * kWidth, q);
  P::load_own(at, in.dout + queries_at * kWidth, dout);
  float shift[2], delta[2];
  for (int half = 0; half < 2; ++half) {
    shift[half] = in.shift[queries_at + at.row_of(half)];
    delta[half] = in.delta[queries_at + at.row_of(half)];
  }
  Sums dq[P::kOuts];
  for (int j0 = -kTile; j0 < keys; j0 += kTile) {  // the first round only fetches
    __pipeline_wait_prior(0);
    __syncthreads();  // the keys are there, and everybody is done with the last ones
    if (const int next = j0 + kTile; next < keys) {
      auto& stage = shared.stage(next);
      P::begin_tile(in.k + (keys_at + next) * kWidth, stage.first);
      P::begin_tile(in.v + (keys_at + next) * kWidth, stage.second);
      begin_entries(in.column + keys_at + next, stage.column);
      __pipeline_commit();
      dropout.decide_in_order(i0, next, shared.kept);
    }
    if (j0 < 0) continue;
    const auto& tile = shared.stage(j0);
    const unsigned kept[2] = {dropout.keys_kept(shared.kept, j0, at.row_of(0), at.t),
                              dropout.keys_kept(shared.kept, j0, at.row_of(1), at.t)};
#pragma unroll 1
    for (int chunk = 0; chunk < kTile / kChunk; ++chunk) {
      Sums dscores[2];
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const int first = kChunk * chunk + 8 * n;
        const Sums score = P::scores(at, q, tile.first, first);
        dscores[n] = P::scores(at, dout, tile.second, first);
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int half = e / 2, key = first + 2 * at.t + e % 2;
          const float weight = exp2(scale2 * score.x[half][e % 2] + shift[half] + tile.column[key]);
          const float factor = HeadDropout::keeps(kept[half], chunk, n, e % 2) ? keep_scale : 0.0f;
          float& dscore = dscores[n].x[half][e % 2];
          dscore = weight * (dscore * factor - delta[half]);
        }
      }
      P::add_weighted(at, dscores, tile.first, kChunk * chunk, dq);
    }
  }
  const float scaled[2] = {scale, scale};
  P::store(at, dq, scaled, rows_of(result.dq, plan, bh, i0, plan.queries), plan.width);
}

/// A block per `own` rows of every head.
template <class P, class Operands>
void start(const char* name, void (*kernel)(TiledPlan, Arrays<float>, Operands),
           const TiledPlan& plan, const Arrays<float>& result, const Operands& in,
           std::int64_t rows, int own, std::int64_t products) {
  const std::int64_t blocks = blocks_for(plan, rows, own);
  if (blocks == 0) return;
  cuda::allow_shared(name, kernel, sizeof(Shared<P>));
  cuda::computes(products * multiply_adds_of_product(plan), true);
  const auto threads = static_cast<unsigned>(kThreads * own / kTile);
  cuda::launch(name, kernel, static_cast<unsigned>(blocks), threads, sizeof(Shared<P>), plan,
               result, in);
}

}  // namespace

bool on_tensor_cores(const Tensor& q) {
  return q.dtype() == DType::f32 && precision(Device::cuda) != Precision::fp32 &&
         q.size(3) <= kTensorCoreWidth;
}

void tensor_core_forward(const TiledPlan& plan, const Arrays<float>& arrays) {
  dispatch(plan.width, [&]<Precision kPrecision, int kWidth>() {
    using P = Products<kPrecision, kWidth>;
    const auto operands = prepare_operands<kPrecision, kWidth>(plan, arrays);
    const auto kernel = plan.score == Score::softmax
                            ? forward_kernel<kPrecision, kWidth, Score::softmax>
                            : forward_kernel<kPrecision, kWidth, Score::gaussian>;
    start<P>("tiled attention on tensor cores", kernel, plan, arrays, operands.tiles, plan.queries,
             kTile, arrays.out == nullptr ? 1 : 2);
  });
}

void tensor_core_backward(const TiledPlan& plan, const Arrays<float>& arrays) {
  dispatch(plan.width, [&]<Precision kPrecision, int kWidth>() {
    using P = Products<kPrecision, kWidth>;
    const auto operands = prepare_operands<kPrecision, kWidth>(plan, arrays);
    start<P>("key gradient on tensor cores", key_gradient_kernel<kPrecision, kWidth>, plan, arrays,
             operands.tiles, plan.keys, kKeys, 4);
    start<P>("query gradient on tensor cores", query_gradient_kernel<kPrecision, kWidth>, plan,
             arrays, operands.tiles, plan.queries, kTile, 3);
  });
}

}  // namespace skytape::attention::tiled_cuda
