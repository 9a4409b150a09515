// Tiled attention on the GPU: tiles of queries, keys and weights in shared memory, sums in
// registers (Dao et al. 2022). True f32 or f64 arithmetic; tiled_tensor_core.cu has tf32 and bf16.
//
// A block owns what it writes, so there are no atomics and results repeat bit for bit:
//   forward   block = (b, h, query tile), walks the keys: out and lse;
//   backward  block = (b, h, key tile), walks the queries: dk and dv;
//             block = (b, h, query tile), walks the keys: dq. Weights are recomputed for both.
//
// 256 threads form a 16 x 16 grid. Thread (ty, tx) owns rows ty + 16 r and columns tx + 16 c of a
// tile: the 16 threads of a row are half a warp, and reads of shared memory meet no bank twice.
#include <cstdint>
#include <limits>

#include "attention/tiled/tiled_cuda.hpp"
#include "tensor/launch/launch.hpp"
#include "tensor/launch/math.hpp"
#include "tensor/random/philox.hpp"

namespace skytape::attention {
namespace {

using tiled_cuda::Arrays;

constexpr int kGrid = 16;  // threads along either side of a tile
constexpr int kThreads = kGrid * kGrid;
constexpr unsigned kAllLanes = 0xffffffffu;
static_assert(kGrid == philox::kLanes, "a thread draws one Philox counter for its columns");

/// Sizes of tiles for head widths up to kWidth.
template <class T, int kWidth> struct Tiling {
  static constexpr int kRun = sizeof(T) == 4 && kWidth <= 64 ? 4 : 2;  // entries a thread and side
  static constexpr int kTile = kGrid * kRun;                           // queries or keys
  static constexpr int kColumns = kWidth / kGrid;                      // head channels of a thread
  static constexpr int kStride = kWidth + 1;       // of a row of q, k, v or dout: odd, no conflicts
  static constexpr int kSquareStride = kTile + 1;  // of a row of weights
  static constexpr int kRows = kTile * kStride;    // numbers of a tile of rows
  static constexpr int kSquare = kTile * kSquareStride;  // numbers of a tile of weights
  static constexpr int kForwardBytes = static_cast<int>(sizeof(T)) * (3 * kRows + kSquare + kTile);
  static constexpr int kBackwardBytes =
      static_cast<int>(sizeof(T)) * (4 * kRows + 2 * kSquare + 3 * kTile);
  static_assert(philox::kChunk % kTile == 0, "a tile's row lies in one chunk of dropout bits");
  static_assert(kBackwardBytes <= 163 * 1024, "compute capability 8.0 has 163 KiB for a block");
};

struct Place {
  int tx, ty;
  __device__ Place() : tx(threadIdx.x % kGrid), ty(threadIdx.x / kGrid) {}
};

template <class T> __device__ T minus_infinity() { return -std::numeric_limits<T>::infinity(); }

/// Copies rows [first, first + kTile) of source [count, width] to shared memory; zeros beyond, and
/// everywhere if source is null.
template <class T, int kWidth> __device__ void load_rows(const T* source, std::int64_t first,
                                                         std::int64_t count, std::int64_t width,
                                                         T* target) {
  using S = Tiling<T, kWidth>;
  for (int e = threadIdx.x; e < S::kTile * kWidth; e += kThreads) {
    const int row = e / kWidth, c = e % kWidth;
    const bool inside = source != nullptr && first + row < count && c < width;
    target[row * S::kStride + c] = inside ? source[(first + row) * width + c] : T(0);
  }
}

/// Copies entries [first, first + kTile) of source [count]; `fill` beyond.
template <class T, int kTile> __device__ void load_entries(const T* source, std::int64_t first,
                                                           std::int64_t count, T fill, T* target) {
  for (int e = threadIdx.x; e < kTile; e += kThreads) {
    target[e] = first + e < count ? source[first + e] : fill;
  }
}

/// This thread's part of x y^T. x, y: tiles of rows.
template <class T, int kWidth, int kRun>
__device__ void products(const Place& at, const T* x, const T* y, T (&result)[kRun][kRun]) {
  constexpr int kStride = Tiling<T, kWidth>::kStride;
#pragma unroll
  for (int r = 0; r < kRun; ++r) {
#pragma unroll
    for (int c = 0; c < kRun; ++c) result[r][c] = 0;
  }
#pragma unroll 4
  for (int d = 0; d < kWidth; ++d) {
    T left[kRun], right[kRun];
#pragma unroll
    for (int r = 0; r < kRun; ++r) left[r] = x[(at.ty + kGrid * r) * kStride + d];
#pragma unroll
    for (int c = 0; c < kRun; ++c) right[c] = y[(at.tx + kGrid * c) * kStride + d];
#pragma unroll
    for (int r = 0; r < kRun; ++r) {
#pragma unroll
      for (int c = 0; c < kRun; ++c) result[r][c] += left[r] * right[c];
    }
  }
}

/// This thread's part of total += w x (w: [row, inner]) or w^T x (w: [inner, row]).
/// x: a tile of rows.
template <bool kTransposed, class T, int kWidth, int kRun, int kColumns>
__device__ void add_weighted(const Place& at, const T* w, const T* x, T (&total)[kRun][kColumns]) {
  using S = Tiling<T, kWidth>;
#pragma unroll 4
  for (int inner = 0; inner < S::kTile; ++inner) {
    T left[kRun], right[kColumns];
#pragma unroll
    for (int r = 0; r < kRun; ++r) {
      const int row = at.ty + kGrid * r;
      left[r] = kTransposed ? w[inner * S::kSquareStride + row] : w[row * S::kSquareStride + inner];
    }
#pragma unroll
    for (int c = 0; c < kColumns; ++c) right[c] = x[inner * S::kStride + at.tx + kGrid * c];
#pragma unroll
    for (int r = 0; r < kRun; ++r) {
#pragma unroll
      for (int c = 0; c < kColumns; ++c) total[r][c] += left[r] * right[c];
    }
  }
}

template <class T, int kRun, int kColumns> __device__ void clear(T (&total)[kRun][kColumns]) {
#pragma unroll
  for (int r = 0; r < kRun; ++r) {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) total[r][c] = 0;
  }
}

/// Stores factor * total to rows [first, first + kTile) of target [count, width].
template <class T, int kRun, int kColumns>
__device__ void store_rows(const Place& at, const T (&total)[kRun][kColumns], T factor, T* target,
                           std::int64_t first, std::int64_t count, std::int64_t width) {
#pragma unroll
  for (int r = 0; r < kRun; ++r) {
    const std::int64_t row = first + at.ty + kGrid * r;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const int channel = at.tx + kGrid * c;
      if (row < count && channel < width) target[row * width + channel] = factor * total[r][c];
    }
  }
}

/// Dropout factors of this thread's columns of row i (i < N); keys from j on. bh = b H + h.
template <class T, int kRun>
__device__ void keep_factors(const TiledPlan& plan, const T* keep, const Place& at, std::int64_t bh,
                             std::int64_t i, std::int64_t j, T (&factor)[kRun]) {
  const T scale = static_cast<T>(plan.keep_scale);
  if (keep != nullptr) {
    const T* const row = keep + (bh * plan.queries + i) * plan.keys;
#pragma unroll
    for (int c = 0; c < kRun; ++c) {
      const std::int64_t key = j + at.tx + kGrid * c;
      factor[c] = key < plan.keys ? row[key] * scale : T(0);
    }
    return;
  }
  if (plan.threshold == 0) {
#pragma unroll
    for (int c = 0; c < kRun; ++c) factor[c] = 1;
    return;
  }
  // Counter tx of the chunk decides about all columns tx + 16 c (philox.hpp, "16 bits per element").
  const std::int64_t element = ((plan.first_head + bh) * plan.row_count + i) * plan.row_stride + j;
  const std::int64_t counter = element / philox::kChunk * philox::kLanes + at.tx;
  const int run = static_cast<int>(element % philox::kChunk) / philox::kLanes;
  const philox::Words words =
      philox::draw(plan.key, static_cast<std::uint64_t>(counter), philox::step_of(plan.step));
#pragma unroll
  for (int c = 0; c < kRun; ++c) {
    const int at_run = run + c;
    const std::uint32_t low = at_run / 2 % 2 == 0 ? words.w[0] : words.w[1];
    const std::uint32_t high = at_run / 2 % 2 == 0 ? words.w[2] : words.w[3];
    const std::uint32_t bits = ((at_run < 4 ? low : high) >> (16 * (at_run % 2))) & 0xffffu;
    factor[c] = bits >= plan.threshold ? scale : T(0);
  }
}

/// Maximum and sum over the 16 threads of a row.
template <class T> __device__ T row_max(T x) {
#pragma unroll
  for (int offset = kGrid / 2; offset > 0; offset /= 2) {
    const T other = __shfl_xor_sync(kAllLanes, x, offset);
    x = other > x ? other : x;
  }
  return x;
}
template <class T> __device__ T row_sum(T x) {
#pragma unroll
  for (int offset = kGrid / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(kAllLanes, x, offset);
  return x;
}

/// Makes relative weights of one row of scores and moves the row's running maximum and sum; returns
/// what earlier sums must be multiplied by.
template <class T, int kRun> __device__ T softmax_row(T (&score)[kRun], T& maximum, T& sum) {
  T largest = maximum;
#pragma unroll
  for (int c = 0; c < kRun; ++c) largest = score[c] > largest ? score[c] : largest;
  largest = row_max(largest);
  const bool nothing = largest == minus_infinity<T>();  // padding so far
  T total = 0;
#pragma unroll
  for (int c = 0; c < kRun; ++c) {
    score[c] = nothing ? T(0) : math::exp(score[c] - largest);
    total += score[c];
  }
  total = row_sum(total);
  const T correction = nothing ? T(1) : math::exp(maximum - largest);
  sum = sum * correction + total;
  maximum = largest;
  return correction;
}

template <class T, int kWidth> __global__ void __launch_bounds__(kThreads)
    forward_kernel(TiledPlan plan, Arrays<T> in) {
  using S = Tiling<T, kWidth>;
  T* const q = reinterpret_cast<T*>(cuda::dynamic_shared());  // [kTile, kStride]
  T* const k = q + S::kRows;                                  // [kTile, kStride]
  T* const v = k + S::kRows;                                  // [kTile, kStride]
  T* const w = v + S::kRows;                                  // [kTile, kSquareStride]
  T* const column = w + S::kSquare;                           // [kTile]
  const Place at;
  const std::int64_t tiles = (plan.queries + S::kTile - 1) / S::kTile;
  const std::int64_t bh = blockIdx.x / tiles, i0 = blockIdx.x % tiles * S::kTile;
  const bool softmax = plan.score == Score::softmax;
  const T scale = static_cast<T>(plan.scale);

  load_rows<T, kWidth>(in.q + bh * plan.queries * plan.width, i0, plan.queries, plan.width, q);
  T total[S::kRun][S::kColumns], maximum[S::kRun], sum[S::kRun];
  clear(total);
#pragma unroll
  for (int r = 0; r < S::kRun; ++r) {
    maximum[r] = minus_infinity<T>();
    sum[r] = 0;
  }
  const std::int64_t keys_at = bh * plan.keys;
  const T* const v_head = in.v == nullptr ? nullptr : in.v + keys_at * plan.width;
  for (std::int64_t j0 = 0; j0 < plan.keys; j0 += S::kTile) {
    __syncthreads();  // everybody is done with the last tile
    load_rows<T, kWidth>(in.k + keys_at * plan.width, j0, plan.keys, plan.width, k);
    load_rows<T, kWidth>(v_head, j0, plan.keys, plan.width, v);
    load_entries<T, S::kTile>(in.column + keys_at, j0, plan.keys, minus_infinity<T>(), column);
    __syncthreads();
    T score[S::kRun][S::kRun];
    products<T, kWidth>(at, q, k, score);
#pragma unroll
    for (int r = 0; r < S::kRun; ++r) {
      const std::int64_t i = i0 + at.ty + kGrid * r;
      const bool real = i < plan.queries;
      const T a = !softmax && real ? in.row[bh * plan.queries + i] : T(0);
#pragma unroll
      for (int c = 0; c < S::kRun; ++c) {
        score[r][c] = scale * score[r][c] + a + column[at.tx + kGrid * c];
        if (!softmax) score[r][c] = math::exp(score[r][c]);
      }
      if (softmax) {
        const T correction = softmax_row(score[r], maximum[r], sum[r]);
#pragma unroll
        for (int c = 0; c < S::kColumns; ++c) total[r][c] *= correction;
      }
      T factor[S::kRun];
      keep_factors(plan, in.keep, at, bh, real ? i : 0, j0, factor);
#pragma unroll
      for (int c = 0; c < S::kRun; ++c) {
        w[(at.ty + kGrid * r) * S::kSquareStride + at.tx + kGrid * c] = score[r][c] * factor[c];
      }
    }
    __syncthreads();
    add_weighted<false, T, kWidth>(at, w, v, total);
  }
#pragma unroll
  for (int r = 0; r < S::kRun; ++r) {
    if (!softmax) break;
    const std::int64_t i = i0 + at.ty + kGrid * r;
    const T inverse = sum[r] > T(0) ? T(1) / sum[r] : T(0);  // 0: no real key
#pragma unroll
    for (int c = 0; c < S::kColumns; ++c) total[r][c] *= inverse;
    if (at.tx == 0 && i < plan.queries) {
      in.lse[bh * plan.queries + i] = maximum[r] + math::log(sum[r]);
    }
  }
  if (in.out != nullptr) {
    store_rows(at, total, T(1), in.out + bh * plan.queries * plan.width, i0, plan.queries,
               plan.width);
  }
}

/// Shared memory of a backward block.
template <class T, int kWidth> struct BackwardTiles {
  using S = Tiling<T, kWidth>;
  T *q, *dout, *k, *v;        // [kTile, kStride]
  T *w, *e;                   // [kTile, kSquareStride]: weights times dropout, dL/dscore
  T *shift, *delta, *column;  // [kTile]

  explicit __device__ BackwardTiles(unsigned char* shared) {
    q = reinterpret_cast<T*>(shared);
    dout = q + S::kRows;
    k = dout + S::kRows;
    v = k + S::kRows;
    w = v + S::kRows;
    e = w + S::kSquare;
    shift = e + S::kSquare;
    delta = shift + S::kTile;
    column = delta + S::kTile;
  }

  __device__ void load_queries(const TiledPlan& plan, const Arrays<T>& in, std::int64_t bh,
                               std::int64_t i0) const {
    const std::int64_t first = bh * plan.queries;
    load_rows<T, kWidth>(in.q + first * plan.width, i0, plan.queries, plan.width, q);
    load_rows<T, kWidth>(in.dout == nullptr ? nullptr : in.dout + first * plan.width, i0,
                         plan.queries, plan.width, dout);
    load_entries<T, S::kTile>(in.delta + first, i0, plan.queries, T(0), delta);
    for (int r = threadIdx.x; r < S::kTile; r += kThreads) {
      const T row = i0 + r < plan.queries ? in.row[first + i0 + r] : T(0);
      const bool no_key = row == minus_infinity<T>();  // every weight vanishes by its column term
      shift[r] = plan.score != Score::softmax ? row : no_key ? T(0) : -row;
    }
  }

  __device__ void load_keys(const TiledPlan& plan, const Arrays<T>& in, std::int64_t bh,
                            std::int64_t j0) const {
    const std::int64_t first = bh * plan.keys;
    load_rows<T, kWidth>(in.k + first * plan.width, j0, plan.keys, plan.width, k);
    load_rows<T, kWidth>(in.v == nullptr ? nullptr : in.v + first * plan.width, j0, plan.keys,
                         plan.width, v);
    load_entries<T, S::kTile>(in.column + first, j0, plan.keys, minus_infinity<T>(), column);
  }

  /// Fills w and e from the loaded queries and keys.
  __device__ void make_weights(const TiledPlan& plan, const Arrays<T>& in, const Place& at,
                               std::int64_t bh, std::int64_t i0, std::int64_t j0) const {
    T score[S::kRun][S::kRun], dscore[S::kRun][S::kRun];
    products<T, kWidth>(at, q, k, score);
    products<T, kWidth>(at, dout, v, dscore);
    const T scale = static_cast<T>(plan.scale);
#pragma unroll
    for (int r = 0; r < S::kRun; ++r) {
      const int row = at.ty + kGrid * r;
      const bool real = i0 + row < plan.queries;
      T factor[S::kRun];
      keep_factors(plan, in.keep, at, bh, real ? i0 + row : 0, j0, factor);
#pragma unroll
      for (int c = 0; c < S::kRun; ++c) {
        const int col = at.tx + kGrid * c;
        const T weight = real ? math::exp(scale * score[r][c] + shift[row] + column[col]) : T(0);
        w[row * S::kSquareStride + col] = weight * factor[c];
        e[row * S::kSquareStride + col] = weight * (dscore[r][c] * factor[c] - delta[row]);
      }
    }
  }
};

template <class T, int kWidth> __global__ void __launch_bounds__(kThreads)
    key_gradient_kernel(TiledPlan plan, Arrays<T> in) {
  using S = Tiling<T, kWidth>;
  const BackwardTiles<T, kWidth> tiles(cuda::dynamic_shared());
  const Place at;
  const std::int64_t count = (plan.keys + S::kTile - 1) / S::kTile;
  const std::int64_t bh = blockIdx.x / count, j0 = blockIdx.x % count * S::kTile;
  tiles.load_keys(plan, in, bh, j0);
  T dk[S::kRun][S::kColumns], dv[S::kRun][S::kColumns];
  clear(dk);
  clear(dv);
  for (std::int64_t i0 = 0; i0 < plan.queries; i0 += S::kTile) {
    __syncthreads();  // everybody is done with the last queries
    tiles.load_queries(plan, in, bh, i0);
    __syncthreads();
    tiles.make_weights(plan, in, at, bh, i0, j0);
    __syncthreads();
    add_weighted<true, T, kWidth>(at, tiles.w, tiles.dout, dv);
    add_weighted<true, T, kWidth>(at, tiles.e, tiles.q, dk);
  }
  const std::int64_t first = bh * plan.keys * plan.width;
  store_rows(at, dk, static_cast<T>(plan.scale), in.dk + first, j0, plan.keys, plan.width);
  if (in.dv != nullptr) store_rows(at, dv, T(1), in.dv + first, j0, plan.keys, plan.width);
}

template <class T, int kWidth> __global__ void __launch_bounds__(kThreads)
    query_gradient_kernel(TiledPlan plan, Arrays<T> in) {
  using S = Tiling<T, kWidth>;
  const BackwardTiles<T, kWidth> tiles(cuda::dynamic_shared());
  const Place at;
  const std::int64_t count = (plan.queries + S::kTile - 1) / S::kTile;
  const std::int64_t bh = blockIdx.x / count, i0 = blockIdx.x % count * S::kTile;
  tiles.load_queries(plan, in, bh, i0);
  T dq[S::kRun][S::kColumns];
  clear(dq);
  for (std::int64_t j0 = 0; j0 < plan.keys; j0 += S::kTile) {
    __syncthreads();  // everybody is done with the last keys
    tiles.load_keys(plan, in, bh, j0);
    __syncthreads();
    tiles.make_weights(plan, in, at, bh, i0, j0);
    __syncthreads();
    add_weighted<false, T, kWidth>(at, tiles.e, tiles.k, dq);
  }
  store_rows(at, dq, static_cast<T>(plan.scale), in.dq + bh * plan.queries * plan.width, i0,
             plan.queries, plan.width);
}

/// Launches one block per tile of `rows` rows of every head. It forms `products` products of all
/// queries with all keys, or of weights with either.
template <class T> void launch(void (*kernel)(TiledPlan, Arrays<T>), const TiledPlan& plan,
                               const Arrays<T>& in, std::int64_t rows, int tile, int bytes,
                               std::int64_t products) {
  const std::int64_t blocks = tiled_cuda::blocks_for(plan, rows, tile);
  if (blocks == 0) return;
  cuda::allow_shared("tiled attention", kernel, static_cast<std::size_t>(bytes));
  cuda::computes(products * tiled_cuda::multiply_adds_of_product(plan));
  cuda::launch("tiled attention", kernel, static_cast<unsigned>(blocks), kThreads,
               static_cast<std::size_t>(bytes), plan, in);
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
    using S = Tiling<T, kWidth>;
    const Arrays<T> a = tiled_cuda::forward_arrays<T>(in, result);
    launch<T>(forward_kernel<T, kWidth>, plan, a, plan.queries, S::kTile, S::kForwardBytes, 2);
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
    using S = Tiling<T, kWidth>;
    const Arrays<T> a = tiled_cuda::backward_arrays<T>(in, dout, delta, result);
    launch<T>(key_gradient_kernel<T, kWidth>, plan, a, plan.keys, S::kTile, S::kBackwardBytes, 4);
    launch<T>(query_gradient_kernel<T, kWidth>, plan, a, plan.queries, S::kTile, S::kBackwardBytes,
              3);
  });
}

}  // namespace skytape::attention
