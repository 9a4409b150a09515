// Tiled attention on tensor cores (Dao, "FlashAttention-2", 2023): operands of matrix products are
// rounded to tf32 or bf16; exponentials, sums, row statistics and dropout stay f32.
//
// A block of four warps owns 64 rows, 16 a warp, whose operands stay in registers; it walks the
// other side in tiles of 64 rows in shared memory. Weights go from the score product to the value
// product within a lane's registers (tensor_core.hpp). As in tiled.cu nobody else writes what a
// block owns:
//   forward   owns queries, walks keys: out and lse;
//   backward  owns keys, walks queries: dk and dv from transposed weights;
//             owns queries, walks keys: dq.
#include <cstdint>
#include <limits>

#include "attention/tiled/tiled_cuda.hpp"
#include "tensor/gemm/precision.hpp"
#include "tensor/gemm/tensor_core.hpp"
#include "tensor/launch/launch.hpp"
#include "tensor/launch/math.hpp"
#include "tensor/random/philox.hpp"

namespace skytape::attention::tiled_cuda {
namespace {

using cuda::Sums;
using cuda::TensorCore;

constexpr int kTile = 64;  // rows of either side
constexpr int kWarps = 4;
constexpr int kThreads = kWarps * cuda::kWarp;
constexpr int kRows = kTile / kWarps;  // of a warp
constexpr int kChunk = 16;             // inner index of one product
constexpr unsigned kAllLanes = 0xffffffffu;
constexpr float kNothing = -std::numeric_limits<float>::infinity();
static_assert(kRows == 16 && philox::kChunk % kTile == 0 && kChunk == philox::kLanes);

/// Shared memory of a block.
template <class Number, int kWidth> struct Shared {
  static constexpr int kStride = kWidth + 8;  // of a row: eight rows then touch every bank
  Number first[kTile * kStride], second[kTile * kStride];  // k and v, or q and dout
  float column[kTile];                                     // of keys
  float shift[kTile], delta[kTile];                        // of queries, backward
  // Dropout: bit r of [query, lane] keeps key 16 r + lane.
  std::uint8_t kept[kTile * philox::kLanes];
};

/// A lane's rows g, g + 8 and columns 2t, 2t + 1 of its warp's 16 rows.
struct Place {
  int g, t, row;  // row: first of the warp in the tile
  __device__ Place()
      : g(threadIdx.x % cuda::kWarp / 4),
        t(threadIdx.x % 4),
        row(threadIdx.x / cuda::kWarp * kRows) {}
  __device__ int row_of(int half) const { return row + g + 8 * half; }
};

/// Products of one precision and head widths up to kWidth.
template <Precision kPrecision, int kWidth> struct Products {
  using Core = TensorCore<kPrecision>;
  using Number = typename Core::Number;
  using Left = typename Core::Left;
  using Memory = Shared<Number, kWidth>;
  static constexpr int kStride = Memory::kStride;
  static constexpr int kSteps = kWidth / kChunk;  // along the head width
  static constexpr int kOuts = kWidth / 8;        // columns of results

  /// This warp's rows of source [count, width] as left operands; zeros beyond, and everywhere if
  /// source is null.
  __device__ static void load_own(const Place& at, const float* source, std::int64_t first,
                                  std::int64_t count, std::int64_t width, Left (&own)[kSteps]) {
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      Number n[2][4];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const std::int64_t row = first + at.row_of(half);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int c = kChunk * s + 2 * at.t + i % 2 + i / 2 * 8;
          const bool inside = source != nullptr && row < count && c < width;
          n[half][i] = Core::rounded(inside ? source[row * width + c] : 0.0f);
        }
      }
      own[s] = Core::left(n);
    }
  }

  /// Rows [first, first + kTile) of source [count, width] to shared memory, rounded.
  __device__ static void load_tile(const float* source, std::int64_t first, std::int64_t count,
                                   std::int64_t width, Number* target) {
    for (int e = threadIdx.x; e < kTile * kWidth; e += kThreads) {
      const int row = e / kWidth, c = e % kWidth;
      const bool inside = source != nullptr && first + row < count && c < width;
      target[row * kStride + c] = Core::rounded(inside ? source[(first + row) * width + c] : 0.0f);
    }
  }

  /// Own rows times rows [first, first + 8) of a tile, over the head width.
  __device__ static Sums scores(const Place& at, const Left (&own)[kSteps], const Number* tile,
                                int first) {
    Sums sums;
    const Number* const row = tile + (first + at.g) * kStride + 2 * at.t;
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      const Number* const n = row + kChunk * s;
      Core::multiply_add(sums, own[s], Core::right(n[0], n[1], n[8], n[9]));
    }
    return sums;
  }

  /// total += weights (16 own rows by 16 of the tile, from `first` on) times rows of the tile.
  __device__ static void add_weighted(const Place& at, const Sums (&weights)[2], const Number* tile,
                                      int first, Sums (&total)[kOuts]) {
    Number w[2][4];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int i = 0; i < 4; ++i) w[half][i] = Core::rounded(weights[i / 2].x[half][i % 2]);
    }
    const Left left = Core::left(w);
    const Number* const n = tile + (first + 2 * at.t) * kStride + at.g;
#pragma unroll
    for (int c = 0; c < kOuts; ++c) {
      const Number* const m = n + 8 * c;
      Core::multiply_add(total[c], left,
                         Core::right(m[0], m[kStride], m[8 * kStride], m[9 * kStride]));
    }
  }

  /// Stores factor[half] * total to own rows of target [count, width].
  __device__ static void store(const Place& at, const Sums (&total)[kOuts],
                               const float (&factor)[2], float* target, std::int64_t first,
                               std::int64_t count, std::int64_t width) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::int64_t row = first + at.row_of(half);
      if (row >= count) continue;
#pragma unroll
      for (int c = 0; c < kOuts; ++c) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int channel = 8 * c + 2 * at.t + e;
          if (channel < width) target[row * width + channel] = factor[half] * total[c].x[half][e];
        }
      }
    }
  }
};

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

/// Over the four lanes of a row.
__device__ float row_max(float x) {
  x = math::max(x, __shfl_xor_sync(kAllLanes, x, 1));
  return math::max(x, __shfl_xor_sync(kAllLanes, x, 2));
}
__device__ float row_sum(float x) {
  x += __shfl_xor_sync(kAllLanes, x, 1);
  return x + __shfl_xor_sync(kAllLanes, x, 2);
}

/// Makes relative weights of one row of scores and moves the row's running maximum and sum; returns
/// what earlier sums must be multiplied by.
__device__ float softmax_row(Sums (&score)[kTile / 8], int half, float& maximum, float& sum) {
  float largest = maximum;
#pragma unroll
  for (int n = 0; n < kTile / 8; ++n) {
    largest = math::max(largest, math::max(score[n].x[half][0], score[n].x[half][1]));
  }
  largest = row_max(largest);
  const bool nothing = largest == kNothing;  // padding so far
  float total = 0;
#pragma unroll
  for (int n = 0; n < kTile / 8; ++n) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      float& x = score[n].x[half][e];
      x = nothing ? 0.0f : math::exp(x - largest);
      total += x;
    }
  }
  total = row_sum(total);
  const float correction = nothing ? 1.0f : math::exp(maximum - largest);
  sum = sum * correction + total;
  maximum = largest;
  return correction;
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
  auto& shared = cuda::shared<typename P::Memory>();
  const Place at;
  const Task task(plan.queries);
  const std::int64_t bh = task.bh, i0 = task.first, keys_at = bh * plan.keys;
  const bool softmax = plan.score == Score::softmax;
  const auto scale = static_cast<float>(plan.scale);

  typename P::Left q[P::kSteps];
  P::load_own(at, in.q + bh * plan.queries * plan.width, i0, plan.queries, plan.width, q);
  Sums total[P::kOuts];
  float maximum[2] = {kNothing, kNothing}, sum[2] = {0, 0}, row[2] = {0, 0};
  for (int half = 0; half < 2; ++half) {
    const std::int64_t i = i0 + at.row_of(half);
    if (!softmax && i < plan.queries) row[half] = in.row[bh * plan.queries + i];
  }
  for (std::int64_t j0 = 0; j0 < plan.keys; j0 += kTile) {
    __syncthreads();  // everybody is done with the last tile
    P::load_tile(in.k + keys_at * plan.width, j0, plan.keys, plan.width, shared.first);
    P::load_tile(in.v == nullptr ? nullptr : in.v + keys_at * plan.width, j0, plan.keys, plan.width,
                 shared.second);
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
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (!softmax) break;
      const float correction = softmax_row(score, half, maximum[half], sum[half]);
#pragma unroll
      for (int c = 0; c < P::kOuts; ++c) {
        total[c].x[half][0] *= correction;
        total[c].x[half][1] *= correction;
      }
    }
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
    P::store(at, total, inverse, in.out + bh * plan.queries * plan.width, i0, plan.queries,
             plan.width);
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
  auto& shared = cuda::shared<typename P::Memory>();
  const Place at;
  const Task task(plan.keys);
  const std::int64_t bh = task.bh, j0 = task.first;
  const std::int64_t keys_at = bh * plan.keys, queries_at = bh * plan.queries;
  const auto scale = static_cast<float>(plan.scale);

  typename P::Left k[P::kSteps], v[P::kSteps];
  P::load_own(at, in.k + keys_at * plan.width, j0, plan.keys, plan.width, k);
  P::load_own(at, in.v == nullptr ? nullptr : in.v + keys_at * plan.width, j0, plan.keys,
              plan.width, v);
  float column[2];
  for (int half = 0; half < 2; ++half) {
    const std::int64_t j = j0 + at.row_of(half);
    column[half] = j < plan.keys ? in.column[keys_at + j] : kNothing;
  }
  Sums dk[P::kOuts], dv[P::kOuts];
  for (std::int64_t i0 = 0; i0 < plan.queries; i0 += kTile) {
    __syncthreads();  // everybody is done with the last queries
    P::load_tile(in.q + queries_at * plan.width, i0, plan.queries, plan.width, shared.first);
    P::load_tile(in.dout == nullptr ? nullptr : in.dout + queries_at * plan.width, i0, plan.queries,
                 plan.width, shared.second);
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
  P::store(at, dk, scaled, in.dk + keys_at * plan.width, j0, plan.keys, plan.width);
  if (in.dv != nullptr) {
    P::store(at, dv, once, in.dv + keys_at * plan.width, j0, plan.keys, plan.width);
  }
}

/// dq: own rows are queries.
template <Precision kPrecision, int kWidth> __global__ void __launch_bounds__(kThreads)
    query_gradient_kernel(TiledPlan plan, Arrays<float> in) {
  using P = Products<kPrecision, kWidth>;
  auto& shared = cuda::shared<typename P::Memory>();
  const Place at;
  const Task task(plan.queries);
  const std::int64_t bh = task.bh, i0 = task.first;
  const std::int64_t keys_at = bh * plan.keys, queries_at = bh * plan.queries;
  const auto scale = static_cast<float>(plan.scale);

  typename P::Left q[P::kSteps], dout[P::kSteps];
  P::load_own(at, in.q + queries_at * plan.width, i0, plan.queries, plan.width, q);
  P::load_own(at, in.dout == nullptr ? nullptr : in.dout + queries_at * plan.width, i0,
              plan.queries, plan.width, dout);
  float shift[2], delta[2];
  for (int half = 0; half < 2; ++half) {
    const std::int64_t i = i0 + at.row_of(half);
    shift[half] = i < plan.queries ? shift_of(plan, in.row[queries_at + i]) : kNothing;
    delta[half] = i < plan.queries ? in.delta[queries_at + i] : 0.0f;
  }
  Sums dq[P::kOuts];
  for (std::int64_t j0 = 0; j0 < plan.keys; j0 += kTile) {
    __syncthreads();  // everybody is done with the last keys
    P::load_tile(in.k + keys_at * plan.width, j0, plan.keys, plan.width, shared.first);
    P::load_tile(in.v == nullptr ? nullptr : in.v + keys_at * plan.width, j0, plan.keys, plan.width,
                 shared.second);
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
  P::store(at, dq, scaled, in.dq + queries_at * plan.width, i0, plan.queries, plan.width);
}

void start(const char* name, void (*kernel)(TiledPlan, Arrays<float>), const TiledPlan& plan,
           const Arrays<float>& in, std::int64_t rows, std::int64_t products) {
  const std::int64_t blocks = blocks_for(plan, rows, kTile);
  if (blocks == 0) return;
  cuda::computes(products * multiply_adds_of_product(plan), true);
  cuda::launch(name, kernel, static_cast<unsigned>(blocks), kThreads, 0, plan, in);
}

/// Calls f.operator()<precision, kWidth>() for the device's precision and the smallest compiled
/// width that holds the head.
template <class F> void dispatch(const TiledPlan& plan, const F& f) {
  const auto by_width = [&]<Precision kPrecision>() {
    if (plan.width <= 32) {
      f.template operator()<kPrecision, 32>();
    } else {
      f.template operator()<kPrecision, 64>();
    }
  };
  if (precision(Device::cuda) == Precision::tf32) {
    by_width.template operator()<Precision::tf32>();
  } else {
    by_width.template operator()<Precision::bf16>();
  }
}

}  // namespace

bool on_tensor_cores(const Tensor& q) {
  return q.dtype() == DType::f32 && precision(Device::cuda) != Precision::fp32 &&
         q.size(3) <= kTensorCoreWidth;
}

void tensor_core_forward(const TiledPlan& plan, const Arrays<float>& in) {
  dispatch(plan, [&]<Precision kPrecision, int kWidth>() {
    start("tiled attention on tensor cores", forward_kernel<kPrecision, kWidth>, plan, in,
          plan.queries, in.out == nullptr ? 1 : 2);
  });
}

void tensor_core_backward(const TiledPlan& plan, const Arrays<float>& in) {
  dispatch(plan, [&]<Precision kPrecision, int kWidth>() {
    start("key gradient on tensor cores", key_gradient_kernel<kPrecision, kWidth>, plan, in,
          plan.keys, 4);
    start("query gradient on tensor cores", query_gradient_kernel<kPrecision, kWidth>, plan, in,
          plan.queries, 3);
  });
}

}  // namespace skytape::attention::tiled_cuda
