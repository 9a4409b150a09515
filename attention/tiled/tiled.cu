// Tiled attention on the GPU: tiles of queries, keys and weights in shared memory, sums in
// registers (Dao et al. 2022). True f32 or f64 arithmetic; tiled_tensor_core.cu has tf32 and bf16.
//
// A block owns rows of one side and walks tiles of the other; nobody else writes what it owns, so
// there are no atomics and results repeat bit for bit:
//   forward   owns queries, walks keys: out and lse;
//   backward  owns keys, walks queries: dk and dv;
//             owns queries, walks keys: dq. Weights are recomputed for both.
//
// 256 threads make two kinds of products, of four neighbouring numbers a load from shared memory:
//   scores          thread (ty, tx) of a 16 x 16 grid has own rows ty + 16 r, walked rows tx + 16 c;
//   weighted sums   thread (team, group) has own rows team + kTeams r and four channels.
// What counts without tensor cores is how many multiply-adds a load serves: with 8 own rows and 4
// walked ones, in f32, 12 loads serve 128; with 8 and 8, 16 serve 256.
#include <cstdint>
#include <limits>
#include <numbers>

#include "attention/tiled/head_dropout.hpp"
#include "attention/tiled/tiled_cuda.hpp"
#include "tensor/gemm/tensor_core.hpp"
#include "tensor/launch/four.hpp"
#include "tensor/launch/launch.hpp"
#include "tensor/launch/math.hpp"

namespace skytape::attention {
namespace {

using cuda::Four;
using tiled_cuda::Arrays;
using tiled_cuda::HeadDropout;
using tiled_cuda::Task;

constexpr int kGrid = 16;  // threads along either side of a tile of scores
constexpr int kThreads = kGrid * kGrid;
constexpr unsigned kAllLanes = 0xffffffffu;
static_assert(kGrid == philox::kLanes, "a counter's keys are a thread's own rows, or walked ones");

/// Sizes of tiles for head widths up to kHeadWidth. Forward has one product of scores where backward
/// has two, and so the registers for twice as many walked rows.
enum class Pass { forward, backward };
template <class T, int kHeadWidth, Pass kPass> struct Tiling {
  static constexpr bool kNarrow = sizeof(T) == 4 && kHeadWidth <= 64;
  static constexpr bool kSmall = sizeof(T) == 8 && kHeadWidth > 64;
  static constexpr int kOwnRun = kNarrow ? 8 : kSmall ? 2 : 4;  // own rows of a thread
  static constexpr bool kLong = kNarrow && kHeadWidth <= 32 && kPass == Pass::forward;
  static constexpr int kWalkRun = kLong ? 8 : kNarrow ? 4 : 2;  // walked rows of a thread
  static constexpr int kOwn = kGrid * kOwnRun, kWalk = kGrid * kWalkRun;
  static constexpr int kWidth = kHeadWidth;
  static constexpr int kStride = kWidth + 4;  // of rows: eight of them then touch every bank
  static constexpr int kWeightStride = kWalk + 4;
  static constexpr int kGroups = kWidth / 4;         // of channels
  static constexpr int kTeams = kThreads / kGroups;  // of own rows
  static constexpr int kRows = kOwn / kTeams;        // own rows of a thread's weighted sums
  static_assert(philox::kChunk % kOwn == 0 && philox::kChunk % kWalk == 0);
};

/// Shared memory of a block.
template <class S, class T> struct Walked {
  alignas(16) T first[S::kWalk * S::kStride], second[S::kWalk * S::kStride];  // k, v or q, dout
  alignas(16) T weights[S::kOwn * S::kWeightStride];
};
template <class S, class T> struct ForwardShared {
  alignas(16) T q[S::kOwn * S::kStride];
  Walked<S, T> walked;
  T column[S::kWalk];  // of keys
  T factor[S::kOwn];   // of sums
};
template <class S, class T> struct BackwardShared {
  alignas(16) T first[S::kOwn * S::kStride], second[S::kOwn * S::kStride];  // k, v or q, dout
  Walked<S, T> walked;
  T shift[S::kWalk], delta[S::kWalk];  // of walked queries
  T column[S::kWalk];                  // of walked keys
};

struct Place {
  int tx, ty;
  __device__ Place() : tx(threadIdx.x % kGrid), ty(threadIdx.x / kGrid) {}
};

// Exponents are base 2, of which a GPU's f32 exponential is one instruction.
template <class T> inline constexpr T kLog2E = std::numbers::log2e_v<T>;
__device__ float exp2(float x) { return cuda::ptx::exp2(x); }
__device__ double exp2(double x) { return ::exp2(x); }
__device__ float larger(float a, float b) { return fmaxf(a, b); }
__device__ double larger(double a, double b) { return fmax(a, b); }

template <class T> __device__ T minus_infinity() { return -std::numeric_limits<T>::infinity(); }

/// Copies rows [first, first + kRows) of a head of source [B H, count, width] to shared memory; zeros
/// beyond, and everywhere if source is null.
template <class S, int kRows, class T> __device__ void load_rows(const T* source, std::int64_t bh,
                                                                 int first, std::int64_t count,
                                                                 std::int64_t width, T* target) {
  const T* const head = source == nullptr ? nullptr : source + bh * count * width;
  const std::int64_t rows = source == nullptr ? 0 : count;
#pragma unroll
  for (int i = 0; i < kRows * S::kGroups / kThreads; ++i) {
    const int e = i * kThreads + threadIdx.x;
    const int row = e / S::kGroups, c = e % S::kGroups * 4;
    cuda::load_four(head, first + row, rows, width, c).store(target + row * S::kStride + c);
  }
}

/// Scores of this thread: own rows times walked rows.
template <class S, class T> __device__ void products(const Place& at, const T* own, const T* walked,
                                                     T (&result)[S::kOwnRun][S::kWalkRun]) {
#pragma unroll
  for (int r = 0; r < S::kOwnRun; ++r) {
#pragma unroll
    for (int c = 0; c < S::kWalkRun; ++c) result[r][c] = 0;
  }
  const T* const left = own + at.ty * S::kStride;
  const T* const right = walked + at.tx * S::kStride;
#pragma unroll 4
  for (int d = 0; d < S::kWidth; d += 4) {
    Four<T> y[S::kWalkRun];
#pragma unroll
    for (int c = 0; c < S::kWalkRun; ++c) y[c] = Four<T>::at(right + kGrid * c * S::kStride + d);
#pragma unroll
    for (int r = 0; r < S::kOwnRun; ++r) {
      const Four<T> x = Four<T>::at(left + kGrid * r * S::kStride + d);
#pragma unroll
      for (int c = 0; c < S::kWalkRun; ++c) {
#pragma unroll
        for (int v = 0; v < 4; ++v) result[r][c] += x.x[v] * y[c].x[v];
      }
    }
  }
}

/// Sums of walked rows, by own row: this thread's own rows team + kTeams r and four
/// channels.
template <class S, class T> struct WeightedSums {
  T x[S::kRows][4] = {};

  __device__ static int team() { return threadIdx.x / S::kGroups; }
  __device__ static int channel() { return threadIdx.x % S::kGroups * 4; }

  /// += weights [own, walked] times walked rows.
  __device__ void add(const T* weights, const T* rows) {
    const T* const left = weights + team() * S::kWeightStride;
    const T* const right = rows + channel();
#pragma unroll 4
    for (int inner = 0; inner < S::kWalk; inner += 4) {
      Four<T> y[4];
#pragma unroll
      for (int v = 0; v < 4; ++v) y[v] = Four<T>::at(right + (inner + v) * S::kStride);
#pragma unroll
      for (int r = 0; r < S::kRows; ++r) {
        const Four<T> w = Four<T>::at(left + S::kTeams * r * S::kWeightStride + inner);
#pragma unroll
        for (int v = 0; v < 4; ++v) {
#pragma unroll
          for (int c = 0; c < 4; ++c) x[r][c] += w.x[v] * y[v].x[c];
        }
      }
    }
  }
  /// Each own row times its factor.
  __device__ void multiply(const T* factor) {
#pragma unroll
    for (int r = 0; r < S::kRows; ++r) {
      const T f = factor[team() + S::kTeams * r];
#pragma unroll
      for (int c = 0; c < 4; ++c) x[r][c] *= f;
    }
  }
  /// To rows from `first` on of a head of target [B H, count, width], times a factor.
  __device__ void store(T factor, T* target, std::int64_t bh, int first, std::int64_t count,
                        std::int64_t width) const {
#pragma unroll
    for (int r = 0; r < S::kRows; ++r) {
      const int row = first + team() + S::kTeams * r;
      if (row >= count) continue;
      Four<T> y;
#pragma unroll
      for (int c = 0; c < 4; ++c) y.x[c] = factor * x[r][c];
      cuda::store_four(y, target + (bh * count + row) * width, channel(), width);
    }
  }
};

/// Keeps decisions about own queries and a chunk of walked keys: byte r is of own row ty + 16 r, its
/// bit b of key 16 b + tx of the chunk. One counter decides about a byte.
template <class S, class T> struct KeptKeys {
  std::uint64_t bits = 0;

  __device__ void decide(const HeadDropout<T>& dropout, const Place& at, int i0, int j0) {
    bits = 0;
#pragma unroll
    for (int half = 0; half < 2; ++half) {  // of the bits: shifts of 64 take several instructions
      unsigned four = 0;
#pragma unroll 2
      for (int r = 4 * half; r < S::kOwnRun && r < 4 * half + 4; ++r) {
        four |= dropout.kept(i0 + at.ty + kGrid * r, j0 + at.tx) << (8 * (r % 4));
      }
      bits |= std::uint64_t{four} << (32 * half);
    }
  }
  /// Those of the tile at j0, from bit 0 of each byte on.
  [[nodiscard]] __device__ std::uint64_t of_tile(int j0) const {
    return bits >> (j0 % philox::kChunk / kGrid);
  }
};
__device__ bool keeps(std::uint64_t bits, int byte, int bit) {
  return (bits >> (8 * byte + bit) & 1u) != 0;
}

/// Maximum and sum over the 16 threads of a row.
template <class T> __device__ T row_max(T x) {
#pragma unroll
  for (int offset = kGrid / 2; offset > 0; offset /= 2) {
    x = larger(x, __shfl_xor_sync(kAllLanes, x, offset));
  }
  return x;
}
template <class T> __device__ T row_sum(T x) {
#pragma unroll
  for (int offset = kGrid / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(kAllLanes, x, offset);
  return x;
}

/// What a key adds to its scores, base 2; beyond the keys weights vanish by it.
template <class T>
__device__ T column_of(const TiledPlan& plan, const Arrays<T>& in, std::int64_t bh, int j) {
  return j < plan.keys ? kLog2E<T> * in.column[bh * plan.keys + j] : minus_infinity<T>();
}
/// What backward adds to the scores of query i, base 2: of a row without a real key nothing, as every
/// weight vanishes by its column term; beyond the queries weights vanish by this.
template <class T>
__device__ T shift_of(const TiledPlan& plan, const Arrays<T>& in, std::int64_t bh, int i) {
  if (i >= plan.queries) return minus_infinity<T>();
  const T row = kLog2E<T> * in.row[bh * plan.queries + i];
  if (plan.score != Score::softmax) return row;
  return row == minus_infinity<T>() ? T(0) : -row;
}

/// Makes relative weights of one row of scores, base 2, and moves the row's running maximum and this
/// thread's part of its sum; returns what earlier sums must be multiplied by.
template <class T, int kRun> __device__ T softmax_row(T (&score)[kRun], T& maximum, T& sum) {
  T largest = maximum;
#pragma unroll
  for (int c = 0; c < kRun; ++c) largest = larger(largest, score[c]);
  largest = row_max(largest);
  const T reference = largest == minus_infinity<T>() ? T(0) : largest;  // padding so far: weights 0
  const T correction = exp2(maximum - reference);
  sum *= correction;
#pragma unroll
  for (int c = 0; c < kRun; ++c) {
    score[c] = exp2(score[c] - reference);
    sum += score[c];
  }
  maximum = largest;
  return correction;
}

template <class T, int kWidth, Score kScore> __global__ void __launch_bounds__(kThreads, 1)
    forward_kernel(TiledPlan plan, Arrays<T> in) {
  using S = Tiling<T, kWidth, Pass::forward>;
  auto& shared = *reinterpret_cast<ForwardShared<S, T>*>(cuda::dynamic_shared());
  auto& [k, v, w] = shared.walked;
  const Place at;
  const Task task(plan.queries, S::kOwn);
  const std::int64_t bh = task.bh;
  const int i0 = task.first, keys = static_cast<int>(plan.keys);
  constexpr bool softmax = kScore == Score::softmax;
  const T scale = kLog2E<T> * static_cast<T>(plan.scale);
  const HeadDropout<T> dropout(plan, in.keep, bh);

  load_rows<S, S::kOwn>(in.q, bh, i0, plan.queries, plan.width, shared.q);
  WeightedSums<S, T> out;
  KeptKeys<S, T> kept;
  T maximum[S::kOwnRun], sum[S::kOwnRun], row[S::kOwnRun];
#pragma unroll
  for (int r = 0; r < S::kOwnRun; ++r) {
    const int i = i0 + at.ty + kGrid * r;
    maximum[r] = minus_infinity<T>();
    sum[r] = 0;
    row[r] = !softmax && i < plan.queries ? kLog2E<T> * in.row[bh * plan.queries + i] : T(0);
  }
  for (int j0 = 0; j0 < keys; j0 += S::kWalk) {
    __syncthreads();  // everybody is done with the last tile
    load_rows<S, S::kWalk>(in.k, bh, j0, plan.keys, plan.width, k);
    load_rows<S, S::kWalk>(in.v, bh, j0, plan.keys, plan.width, v);
    if (const int c = threadIdx.x; c < S::kWalk) {
      shared.column[c] = column_of(plan, in, bh, j0 + c);
    }
    if (j0 % philox::kChunk == 0) kept.decide(dropout, at, i0, j0);
    const std::uint64_t bits = kept.of_tile(j0);
    __syncthreads();
    T score[S::kOwnRun][S::kWalkRun];
    products<S>(at, shared.q, k, score);
#pragma unroll
    for (int r = 0; r < S::kOwnRun; ++r) {
#pragma unroll
      for (int c = 0; c < S::kWalkRun; ++c) {
        score[r][c] = scale * score[r][c] + shared.column[at.tx + kGrid * c];
        if (!softmax) score[r][c] = exp2(score[r][c] + row[r]);
      }
      const int own = at.ty + kGrid * r;
      if constexpr (softmax) {
        const T correction = softmax_row(score[r], maximum[r], sum[r]);
        if (at.tx == 0) shared.factor[own] = correction;
      }
#pragma unroll
      for (int c = 0; c < S::kWalkRun; ++c) {
        w[own * S::kWeightStride + at.tx + kGrid * c] = keeps(bits, r, c) ? score[r][c] : T(0);
      }
    }
    __syncthreads();
    if (softmax) out.multiply(shared.factor);
    out.add(w, v);
  }
  if constexpr (softmax) {
    __syncthreads();
#pragma unroll
    for (int r = 0; r < S::kOwnRun; ++r) {
      const int own = at.ty + kGrid * r;
      const T total = row_sum(sum[r]);
      if (at.tx != 0) continue;
      shared.factor[own] = total > T(0) ? T(1) / total : T(0);  // 0: no real key
      if (i0 + own < plan.queries) {
        in.lse[bh * plan.queries + i0 + own] =
            std::numbers::ln2_v<T> * maximum[r] + math::log(total);
      }
    }
    __syncthreads();
    out.multiply(shared.factor);
  }
  if (in.out != nullptr) out.store(dropout.scale(), in.out, bh, i0, plan.queries, plan.width);
}

/// From a thread's scores and dL/dweights: weights times dropout, and dL/dscores.
template <class T>
__device__ void to_gradients(T& score, T& dscore, T exponent, bool keeps, T keep_scale, T delta) {
  const T weight = exp2(exponent), factor = keeps ? keep_scale : T(0);
  score = weight * factor;
  dscore = weight * (dscore * factor - delta);
}

/// A thread's entries [own, walked] of a tile to shared memory.
template <class S, class T>
__device__ void store_weights(const Place& at, const T (&x)[S::kOwnRun][S::kWalkRun], T* weights) {
#pragma unroll
  for (int r = 0; r < S::kOwnRun; ++r) {
#pragma unroll
    for (int c = 0; c < S::kWalkRun; ++c) {
      weights[(at.ty + kGrid * r) * S::kWeightStride + at.tx + kGrid * c] = x[r][c];
    }
  }
}

template <class T, int kWidth> __global__ void __launch_bounds__(kThreads, 1)
    key_gradient_kernel(TiledPlan plan, Arrays<T> in) {
  using S = Tiling<T, kWidth, Pass::backward>;
  auto& shared = *reinterpret_cast<BackwardShared<S, T>*>(cuda::dynamic_shared());
  auto& [q, dout, w] = shared.walked;
  const Place at;
  const Task task(plan.keys, S::kOwn);
  const std::int64_t bh = task.bh;
  const int j0 = task.first, queries = static_cast<int>(plan.queries);
  const T scale = static_cast<T>(plan.scale), scale2 = kLog2E<T> * scale;
  const HeadDropout<T> dropout(plan, in.keep, bh);
  const T keep_scale = dropout.scale();

  load_rows<S, S::kOwn>(in.k, bh, j0, plan.keys, plan.width, shared.first);
  load_rows<S, S::kOwn>(in.v, bh, j0, plan.keys, plan.width, shared.second);
  T column[S::kOwnRun];
#pragma unroll
  for (int r = 0; r < S::kOwnRun; ++r) {
    column[r] = column_of(plan, in, bh, j0 + at.ty + kGrid * r);
  }
  WeightedSums<S, T> dk, dv;
  for (int i0 = 0; i0 < queries; i0 += S::kWalk) {
    __syncthreads();  // everybody is done with the last queries
    load_rows<S, S::kWalk>(in.q, bh, i0, plan.queries, plan.width, q);
    load_rows<S, S::kWalk>(in.dout, bh, i0, plan.queries, plan.width, dout);
    if (const int c = threadIdx.x; c < S::kWalk) {
      shared.shift[c] = shift_of(plan, in, bh, i0 + c);
      shared.delta[c] = i0 + c < queries ? in.delta[bh * plan.queries + i0 + c] : T(0);
    }
    __syncthreads();
    T score[S::kOwnRun][S::kWalkRun], dscore[S::kOwnRun][S::kWalkRun];
    products<S>(at, shared.first, q, score);
    products<S>(at, shared.second, dout, dscore);
#pragma unroll
    for (int c = 0; c < S::kWalkRun; ++c) {
      const int query = at.tx + kGrid * c;
      const unsigned kept =
          dropout.kept(i0 + query, j0 / philox::kChunk * philox::kChunk + at.ty) >>
          (j0 % philox::kChunk / kGrid);
#pragma unroll
      for (int r = 0; r < S::kOwnRun; ++r) {
        to_gradients(score[r][c], dscore[r][c],
                     scale2 * score[r][c] + shared.shift[query] + column[r], keeps(kept, 0, r),
                     keep_scale, shared.delta[query]);
      }
    }
    store_weights<S>(at, score, w);
    __syncthreads();
    dv.add(w, dout);
    __syncthreads();
    store_weights<S>(at, dscore, w);
    __syncthreads();
    dk.add(w, q);
  }
  dk.store(scale, in.dk, bh, j0, plan.keys, plan.width);
  if (in.dv != nullptr) dv.store(T(1), in.dv, bh, j0, plan.keys, plan.width);
}

template <class T, int kWidth> __global__ void __launch_bounds__(kThreads, 1)
    query_gradient_kernel(TiledPlan plan, Arrays<T> in) {
  using S = Tiling<T, kWidth, Pass::backward>;
  auto& shared = *reinterpret_cast<BackwardShared<S, T>*>(cuda::dynamic_shared());
  auto& [k, v, w] = shared.walked;
  const Place at;
  const Task task(plan.queries, S::kOwn);
  const std::int64_t bh = task.bh;
  const int i0 = task.first, keys = static_cast<int>(plan.keys);
  const T scale = static_cast<T>(plan.scale), scale2 = kLog2E<T> * scale;
  const HeadDropout<T> dropout(plan, in.keep, bh);
  const T keep_scale = dropout.scale();

  load_rows<S, S::kOwn>(in.q, bh, i0, plan.queries, plan.width, shared.first);
  load_rows<S, S::kOwn>(in.dout, bh, i0, plan.queries, plan.width, shared.second);
  T shift[S::kOwnRun], delta[S::kOwnRun];
#pragma unroll
  for (int r = 0; r < S::kOwnRun; ++r) {
    const int i = i0 + at.ty + kGrid * r;
    shift[r] = shift_of(plan, in, bh, i);
    delta[r] = i < plan.queries ? in.delta[bh * plan.queries + i] : T(0);
  }
  WeightedSums<S, T> dq;
  KeptKeys<S, T> kept;
  for (int j0 = 0; j0 < keys; j0 += S::kWalk) {
    __syncthreads();  // everybody is done with the last keys
    load_rows<S, S::kWalk>(in.k, bh, j0, plan.keys, plan.width, k);
    load_rows<S, S::kWalk>(in.v, bh, j0, plan.keys, plan.width, v);
    if (const int c = threadIdx.x; c < S::kWalk) {
      shared.column[c] = column_of(plan, in, bh, j0 + c);
    }
    if (j0 % philox::kChunk == 0) kept.decide(dropout, at, i0, j0);
    const std::uint64_t bits = kept.of_tile(j0);
    __syncthreads();
    T score[S::kOwnRun][S::kWalkRun], dscore[S::kOwnRun][S::kWalkRun];
    products<S>(at, shared.first, k, score);
    products<S>(at, shared.second, v, dscore);
#pragma unroll
    for (int r = 0; r < S::kOwnRun; ++r) {
#pragma unroll
      for (int c = 0; c < S::kWalkRun; ++c) {
        to_gradients(score[r][c], dscore[r][c],
                     scale2 * score[r][c] + shift[r] + shared.column[at.tx + kGrid * c],
                     keeps(bits, r, c), keep_scale, delta[r]);
      }
    }
    store_weights<S>(at, dscore, w);
    __syncthreads();
    dq.add(w, k);
  }
  dq.store(scale, in.dq, bh, i0, plan.queries, plan.width);
}

/// Launches one block per `own` rows of every head. It forms `products` products of all
/// queries with all keys, or of weights with either.
template <class Shared, class T> void launch(void (*kernel)(TiledPlan, Arrays<T>),
                                             const TiledPlan& plan, const Arrays<T>& in,
                                             std::int64_t rows, int own, std::int64_t products) {
  static_assert(sizeof(Shared) <= 163 * 1024, "compute capability 8.0 has 163 KiB for a block");
  const std::int64_t blocks = tiled_cuda::blocks_for(plan, rows, own);
  if (blocks == 0) return;
  cuda::allow_shared("tiled attention", kernel, sizeof(Shared));
  cuda::computes(products * tiled_cuda::multiply_adds_of_product(plan));
  cuda::launch("tiled attention", kernel, static_cast<unsigned>(blocks), kThreads, sizeof(Shared),
               plan, in);
}

/// Calls f.operator()<T, kWidth>() for the smallest compiled width that holds the head.
template <class F> void dispatch(const Tensor& q, const F& f) {
  const std::int64_t width = q.size(3);
  ENSURE(width <= 128, "tiled attention on cuda: head widths up to 128, got q ", q);
  dispatch_float(q.dtype(), [&]<class T>() {
    if (width <= 32) {
      f.template operator()<T, 32>();
    } else if (width <= 64) {
      f.template operator()<T, 64>();
    } else {
      f.template operator()<T, 128>();
    }
  });
}

}  // namespace

void tiled_forward_on(Cuda, const TiledPlan& plan, const TiledInputs& in, TiledForward& result) {
  if (tiled_cuda::on_tensor_cores(in.q)) {
    tiled_cuda::tensor_core_forward(plan, tiled_cuda::forward_arrays<float>(in, result));
    return;
  }
  dispatch(in.q, [&]<class T, int kWidth>() {
    using S = Tiling<T, kWidth, Pass::forward>;
    const Arrays<T> a = tiled_cuda::forward_arrays<T>(in, result);
    const auto kernel = plan.score == Score::softmax ? forward_kernel<T, kWidth, Score::softmax>
                                                     : forward_kernel<T, kWidth, Score::gaussian>;
    launch<ForwardShared<S, T>>(kernel, plan, a, plan.queries, S::kOwn, 2);
  });
}

void tiled_backward_on(Cuda, const TiledPlan& plan, const TiledInputs& in, const Tensor& dout,
                       const Tensor& delta, TiledBackward& result) {
  if (tiled_cuda::on_tensor_cores(in.q)) {
    tiled_cuda::tensor_core_backward(plan,
                                     tiled_cuda::backward_arrays<float>(in, dout, delta, result));
    return;
  }
  dispatch(in.q, [&]<class T, int kWidth>() {
    using S = Tiling<T, kWidth, Pass::backward>;
    const Arrays<T> a = tiled_cuda::backward_arrays<T>(in, dout, delta, result);
    using Shared = BackwardShared<S, T>;
    launch<Shared>(key_gradient_kernel<T, kWidth>, plan, a, plan.keys, S::kOwn, 4);
    launch<Shared>(query_gradient_kernel<T, kWidth>, plan, a, plan.queries, S::kOwn, 3);
  });
}

}  // namespace skytape::attention
