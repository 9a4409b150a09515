// Tiled attention on tensor cores: the tiles of tensor_core_tiles.hpp, all of them. Operands of matrix
// products are rounded to tf32 or bf16; exponentials, sums, row statistics and dropout stay f32.
//
// As in tiled.cu nobody else writes what a block owns:
//   forward   owns queries, walks keys: out and lse;
//   backward  owns keys, 128 a block, walks queries: dk and dv from transposed weights;
//             owns queries, walks keys: dq.
#include <cstdint>

#include "attention/tiled/tensor_core_tiles.hpp"
#include "attention/tiled/tiled_cuda.hpp"
#include "tensor/launch/launch.hpp"
#include "tensor/random/philox.hpp"

namespace skytape::attention::tiled_cuda {
namespace {

using namespace tensor_core_tiles;

static_assert(philox::kChunk == 2 * kTile && kChunk == philox::kLanes);

// Who owns keys owns a whole chunk of them, in eight warps: one counter decides about all of its keys.
inline constexpr int kKeys = philox::kChunk, kKeyThreads = kThreads * kKeys / kTile;

/// Shared memory of a block.
template <class P> struct Shared {
  typename P::Tile first, second;    // k and v, or q and dout
  float column[kTile];               // of keys
  float shift[kTile], delta[kTile];  // of queries, backward
  // Dropout: bit r of [query, lane] keeps key 16 r + lane of the chunk.
  std::uint8_t kept[kTile * philox::kLanes];
};

/// Rows of an array [B, H, count, D] that belong to a head, from `first` on; zeros where it is null.
template <class T> __device__ Consecutive<T> rows_of(T* source, const TiledPlan& plan,
                                                     std::int64_t bh, std::int64_t first,
                                                     std::int64_t count) {
  T* const head = source == nullptr ? nullptr : source + bh * count * plan.width;
  return {head, first, count, plan.width};
}

/// factor times entries [first, first + kTile) of source [count]; `fill` beyond.
template <int kBlock = kThreads>
__device__ void load_entries(const float* source, std::int64_t first, std::int64_t count,
                             float factor, float fill, float* target) {
  for (int e = threadIdx.x; e < kTile; e += kBlock) {
    target[e] = first + e < count ? factor * source[first + e] : fill;
  }
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
        scale_(static_cast<float>(plan.keep_scale)) {}

  [[nodiscard]] __device__ bool drops() const { return given_ != nullptr || plan_.threshold != 0; }

  /// Decides about queries from i0 and the keys of a chunk, by all threads of a block. Who walks the
  /// keys in order, one tile of the chunk after the other, calls it at the first one.
  template <int kBlock = kThreads>
  __device__ void decide(std::int64_t i0, std::int64_t j0, std::uint8_t* kept) const {
    if (!drops()) return;
    for (int e = threadIdx.x; e < kTile * philox::kLanes; e += kBlock) {
      kept[e] =
          static_cast<std::uint8_t>(given_ != nullptr ? as_given(i0, j0, e) : drawn(i0, j0, e));
    }
  }

  /// The bit of the first key of the tile at j0.
  __device__ static int first_bit(std::int64_t j0) {
    return static_cast<int>(j0 % philox::kChunk) / philox::kLanes;
  }
  /// Whether a weight counts, from what decide left; those that do count scale() times.
  __device__ bool keeps(const std::uint8_t* kept, int first_bit, int row, int column) const {
    const unsigned bits = kept[row * philox::kLanes + column % philox::kLanes];
    return (bits >> (first_bit + column / philox::kLanes) & 1u) != 0;
  }
  [[nodiscard]] __device__ float scale() const { return scale_; }
  /// The two in one, 1 where nothing is dropped.
  __device__ float factor(const std::uint8_t* kept, int first_bit, int row, int column) const {
    if (!drops()) return 1;
    return keeps(kept, first_bit, row, column) ? scale_ : 0.0f;
  }

 private:
  /// Bits of query i0 + e / 16 and the chunk's keys from e % 16 on.
  __device__ unsigned drawn(std::int64_t i0, std::int64_t j0, int e) const {
    const std::int64_t chunk =  // rows are whole chunks apart
        (first_row_ + i0 + e / philox::kLanes) * (plan_.row_stride / philox::kChunk) +
        j0 / philox::kChunk;
    const auto counter = static_cast<std::uint64_t>(chunk * philox::kLanes + e % philox::kLanes);
    const philox::Words words = philox::draw(plan_.key, counter, philox::step_of(plan_.step));
    unsigned bits = 0;
#pragma unroll
    for (int r = 0; r < kRuns; ++r) {
      const std::uint32_t number = (words.w[r / 2] >> (16 * (r % 2))) & 0xffffu;
      bits |= (number >= plan_.threshold ? 1u : 0u) << r;
    }
    return bits;
  }
  __device__ unsigned as_given(std::int64_t i0, std::int64_t j0, int e) const {
    const std::int64_t i = i0 + e / philox::kLanes;
    unsigned bits = 0;
    for (int r = 0; r < kRuns; ++r) {
      const std::int64_t j = j0 + r * philox::kLanes + e % philox::kLanes;
      const bool keeps = i < plan_.queries && j < plan_.keys && given_[i * plan_.keys + j] != 0;
      bits |= (keeps ? 1u : 0u) << r;
    }
    return bits;
  }

  static constexpr int kRuns = philox::kChunk / philox::kLanes;  // of keys that share a counter

  const TiledPlan& plan_;
  const float* given_;      // [N, M], null: drawn
  std::int64_t first_row_;  // of the head, among all rows of weights
  float scale_;             // of kept weights
};

/// The block's head and its first own row.
struct Task {
  std::int64_t bh, first;
  __device__ Task(std::int64_t rows, int own) {
    const std::int64_t blocks = (rows + own - 1) / own;
    bh = blockIdx.x / blocks;
    first = blockIdx.x % blocks * own;
  }
};

// Blocks of a multiprocessor: left alone, ptxas spills a few registers to fit one more of them.
template <Precision kPrecision, int kWidth> constexpr int kResident =
    kWidth > 32                     ? 3
    : kPrecision == Precision::tf32 ? 4
                                    : 0;

template <Precision kPrecision, int kWidth, Score kScore>
__global__ void __launch_bounds__(kThreads, kResident<kPrecision, kWidth>)
    forward_kernel(TiledPlan plan, Arrays<float> in) {
  using P = Products<kPrecision, kWidth>;
  auto& shared = cuda::shared<Shared<P>>();
  const Place at;
  const Task task(plan.queries, kTile);
  const std::int64_t bh = task.bh, i0 = task.first, keys_at = bh * plan.keys;
  constexpr bool softmax = kScore == Score::softmax;
  const float scale = kLog2E * static_cast<float>(plan.scale);
  const HeadDropout dropout(plan, in.keep, bh);
  const bool drops = dropout.drops();

  typename P::Left q[P::kSteps];
  P::load_own(at, rows_of(in.q, plan, bh, i0, plan.queries), plan.width, q);
  Sums total[P::kOuts];
  float maximum[2] = {kNothing, kNothing}, sum[2] = {0, 0}, row[2] = {0, 0};
  for (int half = 0; half < 2; ++half) {
    const std::int64_t i = i0 + at.row_of(half);
    if (!softmax && i < plan.queries) row[half] = kLog2E * in.row[bh * plan.queries + i];
  }
  for (std::int64_t j0 = 0; j0 < plan.keys; j0 += kTile) {
    __syncthreads();  // everybody is done with the last tile
    P::load_tile(rows_of(in.k, plan, bh, j0, plan.keys), plan.width, shared.first);
    P::load_tile(rows_of(in.v, plan, bh, j0, plan.keys), plan.width, shared.second);
    load_entries(in.column + keys_at, j0, plan.keys, kLog2E, kNothing, shared.column);
    if (HeadDropout::first_bit(j0) == 0) dropout.decide(i0, j0, shared.kept);
    __syncthreads();
    Sums score[kTile / 8];
#pragma unroll
    for (int n = 0; n < kTile / 8; ++n) {
      score[n] = P::scores(at, q, shared.first, 8 * n);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& x = score[n].x[half][e];
          x = scale * x + shared.column[8 * n + 2 * at.t + e];
          if (!softmax) x = exp2(x + row[half]);
        }
      }
    }
    if constexpr (softmax) softmax_tile(score, maximum, sum, total);
    if (in.out == nullptr) continue;  // the same for all threads
    const int first_bit = HeadDropout::first_bit(j0);
#pragma unroll
    for (int chunk = 0; chunk < kTile / kChunk; ++chunk) {
      Sums weights[2] = {score[2 * chunk], score[2 * chunk + 1]};
      if (drops) {
#pragma unroll
        for (int e = 0; e < 8; ++e) {
          const int n = e / 4, half = e / 2 % 2, key = kChunk * chunk + 8 * n + 2 * at.t + e % 2;
          float& weight = weights[n].x[half][e % 2];
          if (!dropout.keeps(shared.kept, first_bit, at.row_of(half), key)) weight = 0;
        }
      }
      P::add_weighted(at, weights, shared.second, kChunk * chunk, total);
    }
  }
  float factor[2] = {dropout.scale(), dropout.scale()};
  for (int half = 0; half < 2; ++half) {
    if (!softmax) break;
    factor[half] *= sum[half] > 0 ? 1 / sum[half] : 0.0f;  // 0: no real key
    const std::int64_t i = i0 + at.row_of(half);
    if (at.t == 0 && i < plan.queries) {
      in.lse[bh * plan.queries + i] = log_sum_exp(maximum[half], sum[half]);
    }
  }
  if (in.out != nullptr) {
    P::store(at, total, factor, rows_of(in.out, plan, bh, i0, plan.queries), plan.width);
  }
}

/// What backward adds to a query's scaled scores, base 2.
__device__ float shift_of(const TiledPlan& plan, float row) {
  if (plan.score != Score::softmax) return kLog2E * row;
  return row == kNothing ? 0.0f
                         : -kLog2E * row;  // no real key: weights vanish by their column term
}

/// dk and dv: own rows are keys, columns of scores are queries.
template <Precision kPrecision, int kWidth>
__global__ void __launch_bounds__(kKeyThreads, kWidth <= 32 ? 2 : 1)
    key_gradient_kernel(TiledPlan plan, Arrays<float> in) {
  using P = Products<kPrecision, kWidth>;
  auto& shared = cuda::shared<Shared<P>>();
  const Place at;
  const Task task(plan.keys, kKeys);
  const std::int64_t bh = task.bh, j0 = task.first;
  const std::int64_t keys_at = bh * plan.keys, queries_at = bh * plan.queries;
  const auto scale = static_cast<float>(plan.scale);
  const float scale2 = kLog2E * scale;
  const HeadDropout dropout(plan, in.keep, bh);

  typename P::Left k[P::kSteps], v[P::kSteps];
  P::load_own(at, rows_of(in.k, plan, bh, j0, plan.keys), plan.width, k);
  P::load_own(at, rows_of(in.v, plan, bh, j0, plan.keys), plan.width, v);
  float column[2];
  for (int half = 0; half < 2; ++half) {
    const std::int64_t j = j0 + at.row_of(half);
    column[half] = j < plan.keys ? kLog2E * in.column[keys_at + j] : kNothing;
  }
  Sums dk[P::kOuts], dv[P::kOuts];
  for (std::int64_t i0 = 0; i0 < plan.queries; i0 += kTile) {
    __syncthreads();  // everybody is done with the last queries
    P::template load_tile<kKeyThreads>(rows_of(in.q, plan, bh, i0, plan.queries), plan.width,
                                       shared.first);
    P::template load_tile<kKeyThreads>(rows_of(in.dout, plan, bh, i0, plan.queries), plan.width,
                                       shared.second);
    load_entries<kKeyThreads>(in.delta + queries_at, i0, plan.queries, 1.0f, 0.0f, shared.delta);
    for (int r = threadIdx.x; r < kTile; r += kKeyThreads) {  // beyond the queries: weight 0
      shared.shift[r] =
          i0 + r < plan.queries ? shift_of(plan, in.row[queries_at + i0 + r]) : kNothing;
    }
    dropout.decide<kKeyThreads>(i0, j0, shared.kept);
    __syncthreads();
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
          const int half = e / 2, query = first + 2 * at.t + e % 2;
          float& w = weights[n].x[half][e % 2];
          float& dscore = dscores[n].x[half][e % 2];
          const float weight = exp2(scale2 * w + shared.shift[query] + column[half]);
          const float factor = dropout.factor(shared.kept, 0, query, at.row_of(half));
          w = weight * factor;
          dscore = weight * (dscore * factor - shared.delta[query]);
        }
      }
      P::add_weighted(at, weights, shared.second, kChunk * chunk, dv);
      P::add_weighted(at, dscores, shared.first, kChunk * chunk, dk);
    }
  }
  const float once[2] = {1, 1}, scaled[2] = {scale, scale};
  P::store(at, dk, scaled, rows_of(in.dk, plan, bh, j0, plan.keys), plan.width);
  if (in.dv != nullptr) {
    P::store(at, dv, once, rows_of(in.dv, plan, bh, j0, plan.keys), plan.width);
  }
}

/// dq: own rows are queries.
// Four blocks of narrow heads on a multiprocessor: for a fifth, the compiler would spill registers.
template <Precision kPrecision, int kWidth>
__global__ void __launch_bounds__(kThreads, kWidth <= 32 ? 4 : 0)
    query_gradient_kernel(TiledPlan plan, Arrays<float> in) {
  using P = Products<kPrecision, kWidth>;
  auto& shared = cuda::shared<Shared<P>>();
  const Place at;
  const Task task(plan.queries, kTile);
  const std::int64_t bh = task.bh, i0 = task.first;
  const std::int64_t keys_at = bh * plan.keys, queries_at = bh * plan.queries;
  const auto scale = static_cast<float>(plan.scale);
  const float scale2 = kLog2E * scale;
  const HeadDropout dropout(plan, in.keep, bh);

  typename P::Left q[P::kSteps], dout[P::kSteps];
  P::load_own(at, rows_of(in.q, plan, bh, i0, plan.queries), plan.width, q);
  P::load_own(at, rows_of(in.dout, plan, bh, i0, plan.queries), plan.width, dout);
  float shift[2], delta[2];
  for (int half = 0; half < 2; ++half) {
    const std::int64_t i = i0 + at.row_of(half);
    shift[half] = i < plan.queries ? shift_of(plan, in.row[queries_at + i]) : kNothing;
    delta[half] = i < plan.queries ? in.delta[queries_at + i] : 0.0f;
  }
  Sums dq[P::kOuts];
  for (std::int64_t j0 = 0; j0 < plan.keys; j0 += kTile) {
    __syncthreads();  // everybody is done with the last keys
    P::load_tile(rows_of(in.k, plan, bh, j0, plan.keys), plan.width, shared.first);
    P::load_tile(rows_of(in.v, plan, bh, j0, plan.keys), plan.width, shared.second);
    load_entries(in.column + keys_at, j0, plan.keys, kLog2E, kNothing, shared.column);
    if (HeadDropout::first_bit(j0) == 0) dropout.decide(i0, j0, shared.kept);
    __syncthreads();
    const int first_bit = HeadDropout::first_bit(j0);
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
          const int half = e / 2, key = first + 2 * at.t + e % 2;
          const float weight =
              exp2(scale2 * score.x[half][e % 2] + shift[half] + shared.column[key]);
          const float factor = dropout.factor(shared.kept, first_bit, at.row_of(half), key);
          float& dscore = dscores[n].x[half][e % 2];
          dscore = weight * (dscore * factor - delta[half]);
        }
      }
      P::add_weighted(at, dscores, shared.first, kChunk * chunk, dq);
    }
  }
  const float scaled[2] = {scale, scale};
  P::store(at, dq, scaled, rows_of(in.dq, plan, bh, i0, plan.queries), plan.width);
}

/// A block per `own` rows of every head.
void start(const char* name, void (*kernel)(TiledPlan, Arrays<float>), const TiledPlan& plan,
           const Arrays<float>& in, std::int64_t rows, int own, std::int64_t products) {
  const std::int64_t blocks = blocks_for(plan, rows, own);
  if (blocks == 0) return;
  cuda::computes(products * multiply_adds_of_product(plan), true);
  const auto threads = static_cast<unsigned>(kThreads * own / kTile);
  cuda::launch(name, kernel, static_cast<unsigned>(blocks), threads, 0, plan, in);
}

}  // namespace

bool on_tensor_cores(const Tensor& q) {
  return q.dtype() == DType::f32 && precision(Device::cuda) != Precision::fp32 &&
         q.size(3) <= kTensorCoreWidth;
}

void tensor_core_forward(const TiledPlan& plan, const Arrays<float>& in) {
  dispatch(plan.width, [&]<Precision kPrecision, int kWidth>() {
    const auto with = [&](void (*kernel)(TiledPlan, Arrays<float>)) {
      start("tiled attention on tensor cores", kernel, plan, in, plan.queries, kTile,
            in.out == nullptr ? 1 : 2);
    };
    if (plan.score == Score::softmax) {
      with(forward_kernel<kPrecision, kWidth, Score::softmax>);
    } else {
      with(forward_kernel<kPrecision, kWidth, Score::gaussian>);
    }
  });
}

void tensor_core_backward(const TiledPlan& plan, const Arrays<float>& in) {
  dispatch(plan.width, [&]<Precision kPrecision, int kWidth>() {
    start("key gradient on tensor cores", key_gradient_kernel<kPrecision, kWidth>, plan, in,
          plan.keys, kKeys, 4);
    start("query gradient on tensor cores", query_gradient_kernel<kPrecision, kWidth>, plan, in,
          plan.queries, kTile, 3);
  });
}

}  // namespace skytape::attention::tiled_cuda
