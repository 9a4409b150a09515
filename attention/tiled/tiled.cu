// Tiled attention on the GPU: tiles of queries, keys and weights in shared memory, sums in
// registers (Dao et al. 2022). True f32 or f64 arithmetic; tiled_tensor_core.cu has tf32 and bf16.
//
// A block owns rows of one side and walks tiles of the other; nobody else writes what it owns, so
// there are no atomics and results repeat bit for bit:
//   forward   owns queries, walks keys: out and lse;
//   backward  owns a range of keys, tile by tile, walks queries: dk and dv, and the range's part of
//             dq. Scores and their gradients are made once; a second kernel adds up the parts of
//             dq.
// The products of tiles stand in register_tiles.hpp.
#include <cuda_pipeline.h>

#include <algorithm>
#include <cstdint>

#include "attention/tiled/head_dropout.hpp"
#include "attention/tiled/register_tiles.hpp"
#include "attention/tiled/tiled_cuda.hpp"
#include "tensor/launch/launch.hpp"

namespace skytape::attention {
namespace {

using namespace register_tiles;
using tiled_cuda::Arrays;
using tiled_cuda::HeadDropout;
using tiled_cuda::OwnRows;
using tiled_cuda::rows_of;

constexpr int kThreads = kThreadsN * kThreadsN;
static_assert(kThreadsN == philox::kLanes,
              "a counter's keys are a thread's own rows, or walked ones");

enum class Pass { forward, backward };
template <class T, int kWidth, Pass kPass, bool kTight> struct Tiles
    : Tiling<T, kWidth, kThreadsN, kPass == Pass::forward, kTight> {
  static_assert(philox::kChunk % Tiles::kBlockM == 0 && philox::kChunk % Tiles::kBlockN == 0);
};

/// Shared memory of a block of forward.
template <class S, class T> struct ForwardShared {
  alignas(16) T q[S::kBlockM * S::kStride];
  alignas(16) T k[S::kBlockN * S::kStride], v[S::kBlockN * S::kStride];
  alignas(16) T weights[S::kBlockM * S::kWeightStride];
  T column[S::kBlockN];  // of keys
  T factor[S::kBlockM];  // of sums
};
/// Begins to copy rows [first, first + kRows) of a head of source [B H, count, width] to shared
/// memory; zeros beyond, and everywhere if source is null. They are there after arrive().
template <class S, int kRows, class T> __device__ void begin_rows(const T* source, std::int64_t bh,
                                                                  int first, std::int64_t count,
                                                                  std::int64_t width, T* target) {
  const T* const head = source == nullptr ? nullptr : source + bh * count * width;
  const int rows = source == nullptr ? 0 : static_cast<int>(count);
  const bool fours = width % 4 == 0 && Four<T>::aligned(source);
#pragma unroll 2  // all of them take registers that sm_90 then spills
  for (int i = 0; i < kRows * S::kGroups / kThreads; ++i) {
    const int e = i * kThreads + threadIdx.x;
    const int row = first + e / S::kGroups, c = e % S::kGroups * 4;
    T* const to = target + e / S::kGroups * S::kStride + c;
    if (fours && row < rows && c < width) {
      const T* const from = head + row * width + c;
      constexpr int kRun = 16 / sizeof(T);
      for (int x = 0; x < 4; x += kRun) __pipeline_memcpy_async(to + x, from + x, 16);
    } else {
      cuda::load_four(head, row, rows, width, c).store(to);
    }
  }
}
/// Waits for copies that all threads have begun.
__device__ void arrive() {
  __pipeline_commit();
  __pipeline_wait_prior(0);
  __syncthreads();
}

/// Dropout decisions about own queries and a chunk of walked keys: byte r is of own row ty + 16 r,
/// its bit b of key 16 b + tx of the chunk. One counter decides about a byte.
template <class S> struct KeptKeys {
  std::uint64_t bits = 0;

  /// byte(i, j): of query i and the keys j, j + 16, …
  template <class F> __device__ void fill(const ThreadTile& at, int i0, int j0, const F& byte) {
    bits = 0;
#pragma unroll
    for (int half = 0; half < 2; ++half) {  // of the bits: shifts of 64 take several instructions
      unsigned four = 0;
#pragma unroll 2
      for (int r = 4 * half; r < S::kThreadM && r < 4 * half + 4; ++r) {
        four |= byte(i0 + at.own<S>(r), j0 + at.tx) << (8 * (r % 4));
      }
      bits |= std::uint64_t{four} << (32 * half);
    }
  }
  /// Those of the tile at j0, from bit 0 of each byte on.
  [[nodiscard]] __device__ std::uint64_t of_tile(int j0) const {
    return bits >> (j0 % philox::kChunk / kThreadsN);
  }
};
__device__ bool keeps(std::uint64_t bits, int byte, int bit) {
  return (bits >> (8 * byte + bit) & 1u) != 0;
}

/// Returns the term that a key adds to its scores, base 2; beyond the keys it is -inf, so weights
/// vanish.
template <class T>
__device__ T column_of(const TiledPlan& plan, const Arrays<T>& in, std::int64_t bh, int j) {
  return j < plan.keys ? kLog2E<T> * in.column[bh * plan.keys + j] : minus_infinity<T>();
}
/// Returns the term that backward adds to the scores of query i, base 2: 0 for a row without a real
/// key, as every weight vanishes by its column term; beyond the queries -inf, so weights vanish.
template <class T>
__device__ T shift_of(const TiledPlan& plan, const Arrays<T>& in, std::int64_t bh, int i) {
  if (i >= plan.queries) return minus_infinity<T>();
  const T row = kLog2E<T> * in.row[bh * plan.queries + i];
  if (plan.score != Score::softmax) return row;
  return row == minus_infinity<T>() ? T(0) : -row;
}

/// Begins to copy kRows keys from j0 on, and their values; their column terms are there after
/// arrive(), too.
template <class S, int kRows, class T>
__device__ void begin_keys(const TiledPlan& plan, const Arrays<T>& in, std::int64_t bh, int j0,
                           T* k, T* v, T* column) {
  begin_rows<S, kRows>(in.k, bh, j0, plan.keys, plan.width, k);
  begin_rows<S, kRows>(in.v, bh, j0, plan.keys, plan.width, v);
  if (const int j = threadIdx.x; j < kRows) column[j] = column_of(plan, in, bh, j0 + j);
}

template <class T, int kWidth, Score kScore, bool kTight>
__global__ void __launch_bounds__(kThreads, 1) forward_kernel(TiledPlan plan, Arrays<T> in) {
  using S = Tiles<T, kWidth, Pass::forward, kTight>;
  auto& shared = *reinterpret_cast<ForwardShared<S, T>*>(cuda::dynamic_shared());
  T *const k = shared.k, *const v = shared.v, *const w = shared.weights;
  const ThreadTile at;
  const OwnRows task(plan.queries, S::kBlockM);
  const std::int64_t bh = task.bh;
  const int i0 = task.first, keys = static_cast<int>(plan.keys);
  constexpr bool softmax = kScore == Score::softmax;
  const T scale = kLog2E<T> * static_cast<T>(plan.scale);
  const HeadDropout<T> dropout(plan, in, bh);

  begin_rows<S, S::kBlockM>(in.q, bh, i0, plan.queries, plan.width, shared.q);
  WeightedSums<S, T> out;
  KeptKeys<S> kept;
  SoftmaxRows<S, T> rows;
  T row[S::kThreadM];
#pragma unroll
  for (int r = 0; r < S::kThreadM; ++r) {
    const int i = i0 + at.own<S>(r);
    row[r] = !softmax && i < plan.queries ? kLog2E<T> * in.row[bh * plan.queries + i] : T(0);
  }
  for (int j0 = 0; j0 < keys; j0 += S::kBlockN) {
    __syncthreads();  // everybody is done with the last tile
    begin_keys<S, S::kBlockN>(plan, in, bh, j0, k, v, shared.column);
    if (j0 % philox::kChunk == 0) {
      kept.fill(at, i0, j0, [&](int i, int j) { return dropout.decide(i, j); });
    }
    const std::uint64_t bits = kept.of_tile(j0);
    arrive();
    T score[S::kThreadM][S::kThreadN];
    products<S>(at, shared.q, k, score);
#pragma unroll
    for (int r = 0; r < S::kThreadM; ++r) {
#pragma unroll
      for (int c = 0; c < S::kThreadN; ++c) {
        score[r][c] = scale * score[r][c] + shared.column[at.tx + kThreadsN * c];
        if (!softmax) score[r][c] = exp2(score[r][c] + row[r]);
      }
      const int own = at.own<S>(r);
      if constexpr (softmax) rows.add(at, r, score[r], shared.factor);
#pragma unroll
      for (int c = 0; c < S::kThreadN; ++c) {
        w[own * S::kWeightStride + at.tx + kThreadsN * c] = keeps(bits, r, c) ? score[r][c] : T(0);
      }
    }
    __syncthreads();
    if (softmax) out.multiply(shared.factor);
    out.add(w, v);
  }
  if constexpr (softmax) {
    rows.finish(at, shared.factor, [&](int own) {
      return i0 + own < plan.queries ? in.lse + bh * plan.queries + i0 + own : nullptr;
    });
    out.multiply(shared.factor);
  }
  const auto out_rows = rows_of(in.out, plan, bh, i0, plan.queries);
  if (in.out != nullptr) out.store(dropout.scale(), out_rows, plan.width);
}

/// Shared memory of a block of backward.
template <class S, class T> struct BackwardShared {
  struct Walked {
    alignas(16) T q[S::kBlockN * S::kStride], dout[S::kBlockN * S::kStride];
    alignas(16) T weights[S::kBlockM * S::kWeightStride];
  };
  alignas(16) T k[S::kBlockM * S::kStride], v[S::kBlockM * S::kStride];
  union {
    Walked walked;
    alignas(16) typename WalkedSums<S, T>::Parts dq;  // when nobody needs the tile any more
  };
  T shift[S::kBlockN], delta[S::kBlockN];  // of queries
  T column[S::kBlockM];                    // of keys
};

/// Begins to copy the queries from i0 on, and their dout; what they add to scores is there after
/// arrive(), too.
template <class S, class T> __device__ void begin_queries(const TiledPlan& plan,
                                                          const Arrays<T>& in, std::int64_t bh,
                                                          int i0, BackwardShared<S, T>& shared) {
  begin_rows<S, S::kBlockN>(in.q, bh, i0, plan.queries, plan.width, shared.walked.q);
  begin_rows<S, S::kBlockN>(in.dout, bh, i0, plan.queries, plan.width, shared.walked.dout);
  if (const int c = threadIdx.x; c < S::kBlockN) {
    shared.shift[c] = shift_of(plan, in, bh, i0 + c);
    shared.delta[c] = i0 + c < plan.queries ? in.delta[bh * plan.queries + i0 + c] : T(0);
  }
}
/// Returns forward's decisions about a tile: byte c is of walked query tx + 16 c, its bit r of own
/// key ty + 16 r.
template <class S, class T>
__device__ unsigned decided(const HeadDropout<T>& dropout, const ThreadTile& at, int i0, int j0) {
  const auto bits_of = [&](int c) {
    const int chunk = j0 / philox::kChunk * philox::kChunk;
    const unsigned byte = dropout.decided(i0 + at.tx + kThreadsN * c, chunk + at.ty);
    return (byte >> ((j0 - chunk) / kThreadsN)) << (8 * c);
  };
  unsigned kept = 0;
  if (dropout.stores_decisions()) {
#pragma unroll
    for (int c = 0; c < S::kThreadN; ++c) kept |= bits_of(c);
  } else {
#pragma unroll 1  // drawing them side by side takes registers that sm_80 then spills
    for (int c = 0; c < S::kThreadN; ++c) kept |= bits_of(c);
  }
  return kept;
}

/// Keys in ranges of whole tiles, one a block, which adds up what its keys give every query.
template <class T> struct Ranges {
  int keys;  // of a range
  T* dq;     // [ranges, B, H, N, D]
};

template <class T, int kWidth, bool kTight> __global__ void __launch_bounds__(kThreads, 1)
    backward_kernel(TiledPlan plan, Arrays<T> in, Ranges<T> ranges) {
  using S = Tiles<T, kWidth, Pass::backward, kTight>;
  using QuerySums = WalkedSums<S, T>;
  auto& shared = *reinterpret_cast<BackwardShared<S, T>*>(cuda::dynamic_shared());
  auto& [q, dout, w] = shared.walked;
  const ThreadTile at;
  const OwnRows task(plan.keys, ranges.keys);
  const std::int64_t bh = task.bh;
  const int keys = static_cast<int>(plan.keys), queries = static_cast<int>(plan.queries);
  const int end = keys - task.first < ranges.keys ? keys : task.first + ranges.keys;
  T* const dq_of_range =
      ranges.dq + task.first / ranges.keys * plan.batch * plan.heads * plan.queries * plan.width;
  const T scale = static_cast<T>(plan.scale), scale2 = kLog2E<T> * scale;
  const HeadDropout<T> dropout(plan, in, bh);
  const T keep_scale = dropout.scale();

  for (int j0 = task.first; j0 < end; j0 += S::kBlockM) {
    begin_keys<S, S::kBlockM>(plan, in, bh, j0, shared.k, shared.v, shared.column);
    WeightedSums<S, T> dk, dv;
    for (int i0 = 0; i0 < queries; i0 += S::kBlockN) {
      __syncthreads();  // everybody is done with the last queries
      begin_queries(plan, in, bh, i0, shared);
      const unsigned kept = decided<S>(dropout, at, i0, j0);
      arrive();
      T score[S::kThreadM][S::kThreadN], dscore[S::kThreadM][S::kThreadN];
      products<S>(at, shared.k, q, score);
      products<S>(at, shared.v, dout, dscore);
#pragma unroll
      for (int c = 0; c < S::kThreadN; ++c) {
        const int query = at.tx + kThreadsN * c;
#pragma unroll
        for (int r = 0; r < S::kThreadM; ++r) {
          to_gradients(score[r][c], dscore[r][c],
                       scale2 * score[r][c] + shared.shift[query] + shared.column[at.own<S>(r)],
                       keeps(kept, c, r), keep_scale, shared.delta[query]);
        }
      }
      store_weights<S>(at, score, w);
      __syncthreads();
      dv.add(w, dout);
      __syncthreads();
      store_weights<S>(at, dscore, w);
      __syncthreads();
      dk.add(w, q);
      QuerySums dq;
      dq.add(w, shared.k);
      __syncthreads();
      dq.store(shared.dq);
      __syncthreads();
      QuerySums::add_up(shared.dq, scale, j0 > task.first,
                        rows_of(dq_of_range, plan, bh, i0, plan.queries), plan.width);
    }
    dk.store(scale, rows_of(in.dk, plan, bh, j0, plan.keys), plan.width);
    if (in.dv != nullptr) dv.store(T(1), rows_of(in.dv, plan, bh, j0, plan.keys), plan.width);
  }
}

/// dq = what the ranges of keys gave, in their order.
template <class T> struct AddRanges {
  const T* x;  // [ranges, B, H, N, D]
  T* dq;       // [B, H, N, D]
  std::int64_t ranges, size;
  __device__ void operator()(std::int64_t e) const {
    T sum = 0;
#pragma unroll 4
    for (std::int64_t r = 0; r < ranges; ++r) sum += x[r * size + e];
    dq[e] = sum;
  }
};

/// Returns how many ranges of keys get a separate block: enough for twice the multiprocessors of a
/// large GPU, and no more, since each range needs its own dq in memory. All together they take no
/// more than those of kBlocks heads.
std::int64_t ranges_of_keys(const TiledPlan& plan) {
  constexpr std::int64_t kBlocks = 256, kMost = 32;
  const std::int64_t heads = std::max<std::int64_t>(plan.batch * plan.heads, 1);
  return std::clamp<std::int64_t>(kBlocks / heads, 1, kMost);
}

/// Launches one block per `own` rows of every head.
template <class Shared, class T, class... More>
void launch(void (*kernel)(TiledPlan, Arrays<T>, More...), const TiledPlan& plan,
            const Arrays<T>& in, std::int64_t rows, int own, const More&... more) {
  const std::int64_t blocks = tiled_cuda::blocks_for(plan, rows, own);
  if (blocks == 0) return;
  cuda::launch({"tiled attention", static_cast<unsigned>(blocks), kThreads, sizeof(Shared)}, kernel,
               plan, in, more...);
}

}  // namespace

void tiled_forward_on(Cuda, const TiledPlan& plan, const TiledInputs& in, TiledForward& result) {
  if (tiled_cuda::on_tensor_cores(in.q)) {
    tiled_cuda::tensor_core_forward(plan, tiled_cuda::forward_arrays<float>(in, result));
    return;
  }
  register_tiles::dispatch("tiled attention", in.q, [&]<class T, int kWidth>() {
    using Roomy = ForwardShared<Tiles<T, kWidth, Pass::forward, false>, T>;
    const Arrays<T> a = tiled_cuda::forward_arrays<T>(in, result);
    dispatch_room<sizeof(Roomy)>([&]<bool kTight>() {
      using S = Tiles<T, kWidth, Pass::forward, kTight>;
      const auto kernel = plan.score == Score::softmax
                              ? forward_kernel<T, kWidth, Score::softmax, kTight>
                              : forward_kernel<T, kWidth, Score::gaussian, kTight>;
      launch<ForwardShared<S, T>>(kernel, plan, a, plan.queries, S::kBlockM);
    });
  });
}

void tiled_backward_on(Cuda, const TiledPlan& plan, const TiledInputs& in, const Tensor& dout,
                       const Tensor& delta, TiledBackward& result) {
  if (tiled_cuda::on_tensor_cores(in.q)) {
    tiled_cuda::tensor_core_backward(plan,
                                     tiled_cuda::backward_arrays<float>(in, dout, delta, result));
    return;
  }
  register_tiles::dispatch("tiled attention", in.q, [&]<class T, int kWidth>() {
    const Arrays<T> a = tiled_cuda::backward_arrays<T>(in, dout, delta, result);
    if (plan.keys == 0) return result.dq.fill(0);
    using Roomy = BackwardShared<Tiles<T, kWidth, Pass::backward, false>, T>;
    dispatch_room<sizeof(Roomy)>([&]<bool kTight>() {
      using S = Tiles<T, kWidth, Pass::backward, kTight>;
      const std::int64_t tiles = ceil_div(plan.keys, std::int64_t{S::kBlockM});
      const std::int64_t tiles_of_range = ceil_div(tiles, ranges_of_keys(plan));
      const std::int64_t ranges = ceil_div(tiles, tiles_of_range);
      Tensor dq = result.dq;  // [ranges, B, H, N, D]
      if (ranges > 1) {
        dq = Tensor::empty({ranges, plan.batch, plan.heads, plan.queries, plan.width}, dq.dtype(),
                           Device::cuda);
      }
      const int own = static_cast<int>(tiles_of_range) * S::kBlockM;
      launch<BackwardShared<S, T>>(backward_kernel<T, kWidth, kTight>, plan, a, plan.keys, own,
                                   Ranges<T>{own, dq.data<T>()});
      if (ranges == 1) return;
      const std::int64_t size = result.dq.numel();
      cuda::map(size, AddRanges<T>{dq.data<T>(), a.dq, ranges, size});
    });
  });
}

}  // namespace skytape::attention
