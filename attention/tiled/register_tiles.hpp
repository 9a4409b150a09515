// Building blocks of attention kernels in true f32 or f64, CUDA only: tiled.cu walks all keys,
// blocks/block_attention.cu walks lists of blocks. Tiles of either side and weights are in shared
// memory, sums in registers.
//
// A block owns kBlockM rows of one side (queries, or keys for their gradient) and walks the other
// side in tiles of kBlockN rows; k of a product is the head's width, in one piece. Its threads make
// two kinds of products, of four neighbouring numbers a load from shared memory:
//   scores          thread (ty, tx) of a kThreadsM x kThreadsN grid has kThreadM own rows,
//                   ty + kThreadsM r, and kThreadN walked rows, tx + kThreadsN c;
//   weighted sums   thread (team, group) has own rows team + kTeams r and four channels.
// Without tensor cores, speed depends on how many multiply-adds of scores a load serves: with 8 own
// rows and 4 walked ones, in f32, 12 loads serve 128; with 8 and 8, 16 serve 256. Neighbouring
// lanes read the same walked row, or the same channels: a load of 16 bytes a lane goes by half
// warps, which take one cycle each where lanes 2 l and 2 l + 1, or l and l ^ 2, ask for the same,
// otherwise two.
#pragma once

#include <cstdint>
#include <limits>
#include <numbers>

#include "tensor/gemm/tensor_core.hpp"
#include "tensor/launch/four.hpp"
#include "tensor/launch/launch.hpp"
#include "tensor/launch/math.hpp"

namespace skytape::attention::register_tiles {

using cuda::Four;

inline constexpr int kThreadsN = 16;  // threads along a tile's walked side

/// The bytes of shared memory that blocks may have on every device from compute capability 8.0 on:
/// those of 8.6, 8.9 and 12.0.
inline constexpr std::size_t kLeastShared = 99 * 1024;

/// Sizes of tiles for head widths up to kHeadWidth, whose own side has kThreadsOfM threads of a
/// block's grid. kLong: a pass with one product of scores, not two, has the registers for twice as
/// many walked rows. kTight: the tiles take no more than kLeastShared.
template <class T, int kHeadWidth, int kThreadsOfM, bool kLong, bool kTight = false> struct Tiling {
  static constexpr bool kNarrow = sizeof(T) == 4 && kHeadWidth <= 64;
  static constexpr bool kSmall = sizeof(T) == 8 && kHeadWidth > 64;
  static constexpr bool kTwice = kLong && kNarrow && kHeadWidth <= 32 && !kTight;
  static constexpr int kThreadsM = kThreadsOfM, kThreads = kThreadsOfM * kThreadsN;
  static constexpr int kRoomyM = kNarrow ? 8 : kSmall ? 2 : 4;
  static constexpr bool kHalf = kTight && kRoomyM * kThreadsM > 16;  // of the own rows
  static constexpr int kThreadM = kHalf ? kRoomyM / 2 : kRoomyM;     // own rows of a thread
  static constexpr int kThreadN =                                    // walked rows of a thread
      kTwice             ? 8
      : kNarrow          ? 4
      : kSmall && kTight ? 1
                         : 2;
  static constexpr int kBlockM = kThreadsM * kThreadM, kBlockN = kThreadsN * kThreadN;
  static constexpr int kWidth = kHeadWidth;
  static constexpr int kStride = kWidth + 4;  // of rows: eight of them then touch every bank
  static constexpr int kWeightStride = kBlockN + 4;
  static constexpr int kGroups = kWidth / 4;         // of channels
  static constexpr int kTeams = kThreads / kGroups;  // of own rows
  static constexpr int kRows = kBlockM / kTeams;     // own rows of a thread's weighted sums
};

struct ThreadTile {
  int tx, ty;
  __device__ ThreadTile()
      : tx(threadIdx.x / 2 % kThreadsN), ty(threadIdx.x / cuda::kWarp * 2 + threadIdx.x % 2) {}
  template <class S> __device__ int own(int r) const { return ty + S::kThreadsM * r; }
};

// Exponents are base 2, of which a GPU's f32 exponential is one instruction.
template <class T> inline constexpr T kLog2E = std::numbers::log2e_v<T>;
__device__ inline float exp2(float x) { return cuda::ptx::exp2(x); }
__device__ inline double exp2(double x) { return ::exp2(x); }
__device__ inline float larger(float a, float b) { return fmaxf(a, b); }
__device__ inline double larger(double a, double b) { return fmax(a, b); }

template <class T> __device__ T minus_infinity() { return -std::numeric_limits<T>::infinity(); }

/// Scores of this thread: own rows times walked rows.
template <class S, class T> __device__ void products(const ThreadTile& at, const T* own,
                                                     const T* walked,
                                                     T (&result)[S::kThreadM][S::kThreadN]) {
#pragma unroll
  for (int r = 0; r < S::kThreadM; ++r) {
#pragma unroll
    for (int c = 0; c < S::kThreadN; ++c) result[r][c] = 0;
  }
  const T* const left = own + at.ty * S::kStride;
  const T* const right = walked + at.tx * S::kStride;
#pragma unroll 4
  for (int d = 0; d < S::kWidth; d += 4) {
    Four<T> y[S::kThreadN];
#pragma unroll
    for (int c = 0; c < S::kThreadN; ++c) {
      y[c] = Four<T>::at(right + kThreadsN * c * S::kStride + d);
    }
#pragma unroll
    for (int r = 0; r < S::kThreadM; ++r) {
      const Four<T> x = Four<T>::at(left + S::kThreadsM * r * S::kStride + d);
#pragma unroll
      for (int c = 0; c < S::kThreadN; ++c) {
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

  __device__ static int team() { return threadIdx.x / 2 / S::kGroups * 2 + threadIdx.x % 2; }
  __device__ static int channel() { return threadIdx.x / 2 % S::kGroups * 4; }

  /// += weights [own, walked] times walked rows.
  __device__ void add(const T* weights, const T* rows) {
    const T* const left = weights + team() * S::kWeightStride;
    const T* const right = rows + channel();
#pragma unroll 4
    for (int inner = 0; inner < S::kBlockN; inner += 4) {
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
  /// To rows(own row) of `width` entries, null: nowhere, times a factor.
  template <class Rows>
  __device__ void store(T factor, const Rows& rows, std::int64_t width) const {
#pragma unroll
    for (int r = 0; r < S::kRows; ++r) {
      T* const to = rows(team() + S::kTeams * r);
      if (to == nullptr) continue;
      Four<T> y;
#pragma unroll
      for (int c = 0; c < 4; ++c) y.x[c] = factor * x[r][c];
      cuda::store_four(y, to, channel(), width);
    }
  }
};

/// Sums of own rows, by walked row, where weights lie as [own, walked]: four walked rows and four
/// channels a thread. Threads that are left take a part of the own rows each, so that parts are
/// added up after.
template <class S, class T> struct WalkedSums {
  static constexpr int kTeams = S::kBlockN / 4;
  static constexpr int kParts = S::kThreads / (kTeams * S::kGroups);
  static constexpr int kOwn = S::kBlockM / kParts;
  using Parts = T[kParts][S::kBlockN * S::kStride];  // in shared memory
  T x[4][4] = {};

  // Neighbouring lanes read the same channels, as in WeightedSums.
  __device__ static int team() {
    return threadIdx.x / 2 / S::kGroups % (kTeams / 2) * 2 + threadIdx.x % 2;
  }
  __device__ static int channel() { return threadIdx.x / 2 % S::kGroups * 4; }
  __device__ static int part() { return threadIdx.x / (kTeams * S::kGroups); }

  /// += weights [own, walked], transposed, times own rows.
  __device__ void add(const T* weights, const T* rows) {
    const T* const left = weights + part() * kOwn * S::kWeightStride + 4 * team();
    const T* const right = rows + part() * kOwn * S::kStride + channel();
#pragma unroll 8
    for (int own = 0; own < kOwn; ++own) {
      const Four<T> w = Four<T>::at(left + own * S::kWeightStride);
      const Four<T> y = Four<T>::at(right + own * S::kStride);
#pragma unroll
      for (int r = 0; r < 4; ++r) {
#pragma unroll
        for (int c = 0; c < 4; ++c) x[r][c] += w.x[r] * y.x[c];
      }
    }
  }
  __device__ void store(Parts& parts) const {
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      Four<T> four;
#pragma unroll
      for (int c = 0; c < 4; ++c) four.x[c] = x[r][c];
      four.store(parts[part()] + (4 * team() + r) * S::kStride + channel());
    }
  }
  /// rows(walked row) = factor times the sums of all parts, plus what it was if there was an
  /// earlier tile.
  template <class Rows> __device__ static void add_up(const Parts& parts, T factor, bool earlier,
                                                      const Rows& rows, std::int64_t width) {
#pragma unroll 2
    for (int i = 0; i < S::kBlockN * S::kGroups / S::kThreads; ++i) {
      const int e = i * S::kThreads + threadIdx.x;
      const int row = e / S::kGroups, c = e % S::kGroups * 4;
      T* const to = rows(row);
      if (to == nullptr) continue;
      Four<T> sum = cuda::load_four(earlier ? to : nullptr, c, width);
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        const Four<T> y = Four<T>::at(parts[part] + row * S::kStride + c);
#pragma unroll
        for (int x = 0; x < 4; ++x) sum.x[x] += factor * y.x[x];
      }
      cuda::store_four(sum, to, c, width);
    }
  }
};

/// Maximum and sum over the 16 threads of a row: every other lane of a warp.
template <class T> __device__ T row_max(T x) {
  return cuda::warp_reduce_up<2, cuda::kWarp>(x, [](T a, T b) { return larger(a, b); });
}
template <class T> __device__ T row_sum(T x) { return cuda::warp_reduce_up<2, cuda::kWarp>(x); }

/// Makes relative weights of one row of scores, base 2, and moves the row's running maximum and
/// this thread's part of its sum; returns what earlier sums must be multiplied by.
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

/// The running softmax of a thread's own rows.
template <class S, class T> struct SoftmaxRows {
  T maximum[S::kThreadM], sum[S::kThreadM];

  __device__ SoftmaxRows() {
#pragma unroll
    for (int r = 0; r < S::kThreadM; ++r) clear(r);
  }
  /// Scores of a tile become relative weights, and factor[own row] what earlier sums shrink by.
  __device__ void add(const ThreadTile& at, int r, T (&score)[S::kThreadN], T* factor) {
    const T correction = softmax_row(score, maximum[r], sum[r]);
    if (at.tx == 0) factor[at.own<S>(r)] = correction;
  }
  /// Forgets an own row: nothing counts for it.
  __device__ void clear(int r) {
    maximum[r] = minus_infinity<T>();
    sum[r] = 0;
  }
  /// factor[own row] becomes what makes sums of relative weights means, *lse(own row) the log of
  /// the row's sum (null: nobody asks); for all threads of a block.
  template <class Lse>
  __device__ void finish(const ThreadTile& at, T* factor, const Lse& lse) const {
    __syncthreads();
#pragma unroll
    for (int r = 0; r < S::kThreadM; ++r) {
      const T total = row_sum(sum[r]);
      if (at.tx != 0) continue;
      factor[at.own<S>(r)] = total > T(0) ? T(1) / total : T(0);  // 0: no real key
      T* const to = lse(at.own<S>(r));
      if (to != nullptr) *to = std::numbers::ln2_v<T> * maximum[r] + math::log(total);
    }
    __syncthreads();
  }
};

/// From a thread's scores and dL/dweights: weights times dropout, and dL/dscores.
template <class T>
__device__ void to_gradients(T& score, T& dscore, T exponent, bool keeps, T keep_scale, T delta) {
  const T weight = exp2(exponent), factor = keeps ? keep_scale : T(0);
  score = weight * factor;
  dscore = weight * (dscore * factor - delta);
}

/// A thread's entries [own, walked] of a tile to shared memory.
template <class S, class T> __device__ void store_weights(const ThreadTile& at,
                                                          const T (&x)[S::kThreadM][S::kThreadN],
                                                          T* weights) {
#pragma unroll
  for (int r = 0; r < S::kThreadM; ++r) {
#pragma unroll
    for (int c = 0; c < S::kThreadN; ++c) {
      weights[at.own<S>(r) * S::kWeightStride + at.tx + kThreadsN * c] = x[r][c];
    }
  }
}

/// Calls f.operator()<kTight>(), tight where blocks of this device have no room for kRoomyBytes.
template <std::size_t kRoomyBytes, class F> void dispatch_room(const F& f) {
  static_assert(kRoomyBytes <= 163 * 1024, "compute capability 8.0 has 163 KiB for a block");
  if constexpr (kRoomyBytes > kLeastShared) {
    if (!cuda::has_shared(kRoomyBytes)) return f.template operator()<true>();
  }
  f.template operator()<false>();
}

/// Calls f.operator()<T, kWidth>() for the smallest compiled width that holds the head.
template <class F> void dispatch(const char* what, const Tensor& q, const F& f) {
  const std::int64_t width = q.size(3);
  ENSURE(width <= 128, what, " on cuda: head widths up to 128, got q ", q);
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

}  // namespace skytape::attention::register_tiles
