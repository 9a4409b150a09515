// Tiled attention on tensor cores: the tiles of tensor_core_tiles.hpp, all of them. Operands of matrix
// products are rounded to tf32 or bf16; exponentials, sums, row statistics and dropout stay f32.
//
// As in tiled.cu nobody else writes what a block owns:
//   forward   owns queries, walks keys: out and lse;
//   backward  owns keys, walks queries: dk and dv from transposed weights;
//             owns queries, walks keys: dq.
#include <cstdint>

#include "attention/tiled/tensor_core_tiles.hpp"
#include "attention/tiled/tiled_cuda.hpp"
#include "tensor/launch/launch.hpp"
#include "tensor/random/philox.hpp"

namespace skytape::attention::tiled_cuda {
namespace {

using namespace tensor_core_tiles;

static_assert(philox::kChunk % kTile == 0 && kChunk == philox::kLanes);

/// Shared memory of a block.
template <class P> struct Shared {
  typename P::Tile first, second;    // k and v, or q and dout
  float column[kTile];               // of keys
  float shift[kTile], delta[kTile];  // of queries, backward
  // Dropout: bit r of [query, lane] keeps key 16 r + lane.
  std::uint8_t kept[kTile * philox::kLanes];
};

/// Rows of an array [B, H, count, D] that belong to a head, from `first` on; zeros where it is null.
template <class T> __device__ Consecutive<T> rows_of(T* source, const TiledPlan& plan,
                                                     std::int64_t bh, std::int64_t first,
                                                     std::int64_t count) {
  T* const head = source == nullptr ? nullptr : source + bh * count * plan.width;
  return {head, first, count, plan.width};
}

/// Entries [first, first + kTile) of source [count]; `fill` beyond.
__device__ void load_entries(const float* source, std::int64_t first, std::int64_t count,
                             float fill, float* target) {
  for (int e = threadIdx.x; e < kTile; e += kThreads) {
    target[e] = first + e < count ? source[first + e] : fill;
  }
}

/// Dropout's decisions about queries from i0 and keys from j0 on. One counter decides about the
/// keys 16 apart (philox.hpp, "16 bits per element").
__device__ void draw_kept(const TiledPlan& plan, std::int64_t bh, std::int64_t i0, std::int64_t j0,
                          std::uint8_t* kept) {
  if (plan.threshold == 0) return;
  for (int e = threadIdx.x; e < kTile * philox::kLanes; e += kThreads) {
    const std::int64_t i = i0 + e / philox::kLanes;
    const std::int64_t element =
        ((plan.first_head + bh) * plan.row_count + i) * plan.row_stride + j0;
    const std::int64_t counter = element / philox::kChunk * philox::kLanes + e % philox::kLanes;
    const philox::Words words =
        philox::draw(plan.key, static_cast<std::uint64_t>(counter), philox::step_of(plan.step));
    const bool later = element % philox::kChunk != 0;  // the chunk's second half
    const std::uint32_t two[2] = {later ? words.w[2] : words.w[0], later ? words.w[3] : words.w[1]};
    unsigned bits = 0;
#pragma unroll
    for (int r = 0; r < kTile / kChunk; ++r) {
      const std::uint32_t drawn = (two[r / 2] >> (16 * (r % 2))) & 0xffffu;
      bits |= (drawn >= plan.threshold ? 1u : 0u) << r;
    }
    kept[e] = static_cast<std::uint8_t>(bits);
  }
}

/// Dropout factor of query i0 + row and key j0 + column.
__device__ float keep_factor(const TiledPlan& plan, const float* keep, const std::uint8_t* kept,
                             std::int64_t bh, std::int64_t i0, int row, std::int64_t j0,
                             int column) {
  const auto scale = static_cast<float>(plan.keep_scale);
  if (keep != nullptr) {
    const std::int64_t i = i0 + row, j = j0 + column;
    const bool inside = i < plan.queries && j < plan.keys;
    return inside ? scale * keep[(bh * plan.queries + i) * plan.keys + j] : 0.0f;
  }
  if (plan.threshold == 0) return 1;
  const unsigned bits = kept[row * philox::kLanes + column % philox::kLanes];
  return (bits >> (column / philox::kLanes) & 1u) != 0 ? scale : 0.0f;
}

/// The block's head and its first own row.
struct Task {
  std::int64_t bh, first;
  __device__ explicit Task(std::int64_t rows) {
    const std::int64_t tiles = (rows + kTile - 1) / kTile;
    bh = blockIdx.x / tiles;
    first = blockIdx.x % tiles * kTile;
  }
};

template <Precision kPrecision, int kWidth> __global__ void __launch_bounds__(kThreads)
    forward_kernel(TiledPlan plan, Arrays<float> in) {
  using P = Products<kPrecision, kWidth>;
  auto& shared = cuda::shared<Shared<P>>();
  const Place at;
  const Task task(plan.queries);
  const std::int64_t bh = task.bh, i0 = task.first, keys_at = bh * plan.keys;
  const bool softmax = plan.score == Score::softmax;
  const auto scale = static_cast<float>(plan.scale);

  typename P::Left q[P::kSteps];
  P::load_own(at, rows_of(in.q, plan, bh, i0, plan.queries), plan.width, q);
  Sums total[P::kOuts];
  float maximum[2] = {kNothing, kNothing}, sum[2] = {0, 0}, row[2] = {0, 0};
  for (int half = 0; half < 2; ++half) {
    const std::int64_t i = i0 + at.row_of(half);
    if (!softmax && i < plan.queries) row[half] = in.row[bh * plan.queries + i];
  }
  for (std::int64_t j0 = 0; j0 < plan.keys; j0 += kTile) {
    __syncthreads();  // everybody is done with the last tile
    P::load_tile(rows_of(in.k, plan, bh, j0, plan.keys), plan.width, shared.first);
    P::load_tile(rows_of(in.v, plan, bh, j0, plan.keys), plan.width, shared.second);
    load_entries(in.column + keys_at, j0, plan.keys, kNothing, shared.column);
    draw_kept(plan, bh, i0, j0, shared.kept);
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
          x = scale * x + row[half] + shared.column[8 * n + 2 * at.t + e];
          if (!softmax) x = math::exp(x);
        }
      }
    }
    if (softmax) softmax_tile(score, maximum, sum, total);
    if (in.out == nullptr) continue;  // the same for all threads
#pragma unroll
    for (int chunk = 0; chunk < kTile / kChunk; ++chunk) {
      Sums weights[2] = {score[2 * chunk], score[2 * chunk + 1]};
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        const int n = e / 4, half = e / 2 % 2;
        weights[n].x[half][e % 2] *=
            keep_factor(plan, in.keep, shared.kept, bh, i0, at.row_of(half), j0,
                        kChunk * chunk + 8 * n + 2 * at.t + e % 2);
      }
      P::add_weighted(at, weights, shared.second, kChunk * chunk, total);
    }
  }
  float inverse[2] = {1, 1};
  for (int half = 0; half < 2; ++half) {
    if (!softmax) break;
    inverse[half] = sum[half] > 0 ? 1 / sum[half] : 0.0f;  // 0: no real key
    const std::int64_t i = i0 + at.row_of(half);
    if (at.t == 0 && i < plan.queries) {
      in.lse[bh * plan.queries + i] = maximum[half] + math::log(sum[half]);
    }
  }
  if (in.out != nullptr) {
    P::store(at, total, inverse, rows_of(in.out, plan, bh, i0, plan.queries), plan.width);
  }
}

/// What backward adds to a query's scaled scores.
__device__ float shift_of(const TiledPlan& plan, float row) {
  if (plan.score != Score::softmax) return row;
  return row == kNothing ? 0.0f : -row;  // no real key: weights vanish by their column term
}

/// dk and dv: own rows are keys, columns of scores are queries.
template <Precision kPrecision, int kWidth> __global__ void __launch_bounds__(kThreads)
    key_gradient_kernel(TiledPlan plan, Arrays<float> in) {
  using P = Products<kPrecision, kWidth>;
  auto& shared = cuda::shared<Shared<P>>();
  const Place at;
  const Task task(plan.keys);
  const std::int64_t bh = task.bh, j0 = task.first;
  const std::int64_t keys_at = bh * plan.keys, queries_at = bh * plan.queries;
  const auto scale = static_cast<float>(plan.scale);

  typename P::Left k[P::kSteps], v[P::kSteps];
  P::load_own(at, rows_of(in.k, plan, bh, j0, plan.keys), plan.width, k);
  P::load_own(at, rows_of(in.v, plan, bh, j0, plan.keys), plan.width, v);
  float column[2];
  for (int half = 0; half < 2; ++half) {
    const std::int64_t j = j0 + at.row_of(half);
    column[half] = j < plan.keys ? in.column[keys_at + j] : kNothing;
  }
  Sums dk[P::kOuts], dv[P::kOuts];
  for (std::int64_t i0 = 0; i0 < plan.queries; i0 += kTile) {
    __syncthreads();  // everybody is done with the last queries
    P::load_tile(rows_of(in.q, plan, bh, i0, plan.queries), plan.width, shared.first);
    P::load_tile(rows_of(in.dout, plan, bh, i0, plan.queries), plan.width, shared.second);
    load_entries(in.delta + queries_at, i0, plan.queries, 0.0f, shared.delta);
    for (int r = threadIdx.x; r < kTile; r += kThreads) {  // beyond the queries: weight 0
      shared.shift[r] =
          i0 + r < plan.queries ? shift_of(plan, in.row[queries_at + i0 + r]) : kNothing;
    }
    draw_kept(plan, bh, i0, j0, shared.kept);
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
          const float weight = math::exp(scale * w + shared.shift[query] + column[half]);
          const float factor =
              keep_factor(plan, in.keep, shared.kept, bh, i0, query, j0, at.row_of(half));
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
  const Task task(plan.queries);
  const std::int64_t bh = task.bh, i0 = task.first;
  const std::int64_t keys_at = bh * plan.keys, queries_at = bh * plan.queries;
  const auto scale = static_cast<float>(plan.scale);

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
    load_entries(in.column + keys_at, j0, plan.keys, kNothing, shared.column);
    draw_kept(plan, bh, i0, j0, shared.kept);
    __syncthreads();
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
              math::exp(scale * score.x[half][e % 2] + shift[half] + shared.column[key]);
          const float factor =
              keep_factor(plan, in.keep, shared.kept, bh, i0, at.row_of(half), j0, key);
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

void start(const char* name, void (*kernel)(TiledPlan, Arrays<float>), const TiledPlan& plan,
           const Arrays<float>& in, std::int64_t rows, std::int64_t products) {
  const std::int64_t blocks = blocks_for(plan, rows, kTile);
  if (blocks == 0) return;
  cuda::computes(products * multiply_adds_of_product(plan), true);
  cuda::launch(name, kernel, static_cast<unsigned>(blocks), kThreads, 0, plan, in);
}

}  // namespace

bool on_tensor_cores(const Tensor& q) {
  return q.dtype() == DType::f32 && precision(Device::cuda) != Precision::fp32 &&
         q.size(3) <= kTensorCoreWidth;
}

void tensor_core_forward(const TiledPlan& plan, const Arrays<float>& in) {
  dispatch(plan.width, [&]<Precision kPrecision, int kWidth>() {
    start("tiled attention on tensor cores", forward_kernel<kPrecision, kWidth>, plan, in,
          plan.queries, in.out == nullptr ? 1 : 2);
  });
}

void tensor_core_backward(const TiledPlan& plan, const Arrays<float>& in) {
  dispatch(plan.width, [&]<Precision kPrecision, int kWidth>() {
    start("key gradient on tensor cores", key_gradient_kernel<kPrecision, kWidth>, plan, in,
          plan.keys, 4);
    start("query gradient on tensor cores", query_gradient_kernel<kPrecision, kWidth>, plan, in,
          plan.queries, 3);
  });
}

}  // namespace skytape::attention::tiled_cuda
