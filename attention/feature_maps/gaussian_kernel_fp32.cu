// Fused kernel products on the GPU in fp32.
//
// A block of eight warps takes 32 rows at a time against up to 128 landmarks; C and E of a tile lie
// in shared memory, whence both sides take them:
//
//   C = exp(x.w - norms)    E = C (u.y)              a warp: 4 rows, a lane: landmarks 32 apart
//   dx = E w - row_sum(E) x      C y                a warp: the same rows, a lane: columns 32 apart
//   dw += E^T x - column_sum(E) w   C^T u            a warp: 16 landmarks, a lane: the same columns
//
// The sums of the last line stay in registers while the rows go by.
#include <cstdint>
#include <limits>

#include "attention/feature_maps/gaussian_kernel_cuda.hpp"
#include "tensor/launch/math.hpp"

namespace skytape::attention::kernel_cuda {
namespace {

constexpr int kRows = 32;                           // of a tile
constexpr int kOwn = kRows / kWarps;                // rows of a warp
constexpr int kOwnLandmarks = kLandmarks / kWarps;  // of a warp
constexpr int kWeightStride = kLandmarks + 4;
static_assert(kOwn == 4 && kChunkRows % kRows == 0);

/// Columns of a lane: lane, lane + 32, …
template <int kWidth> constexpr int kColumns = ceil_div(kWidth, cuda::kWarp);

/// Rows in shared memory. A quarter warp that reads four columns of a row each meets no bank twice.
template <int kCount, int kWidth> struct Tile {
  static constexpr int kStride = kWidth + 4;
  alignas(16) float n[kCount * kStride];

  __device__ Four<float> four(int row, int c) const {
    return Four<float>::at(&n[row * kStride + c]);
  }
  /// 0 beyond the columns.
  __device__ float at(int row, int c) const { return c < kWidth ? n[row * kStride + c] : 0.0f; }

  /// Rows of source [count, width] times their factors, zeros beyond.
  __device__ void load(const float* source, std::int64_t count, std::int64_t width,
                       const RowFactors& factors = {}) {
    for (int e = threadIdx.x; e < kCount * kWidth / 4; e += kThreads) {
      const int row = e / (kWidth / 4), c = 4 * (e % (kWidth / 4));
      Four<float> four = cuda::load_four(source, row, count, width, c);
      const float factor = row < count ? factors.of(row) : 0.0f;
#pragma unroll
      for (int i = 0; i < 4; ++i) four.x[i] *= factor;
      four.store(&n[row * kStride + c]);
    }
  }
  /// Each row's term of the exponent, -inf beyond `count`; reads what other threads loaded.
  __device__ void terms(int count, bool gaussian, float* term) const {
    for (int row = threadIdx.x; row < kCount; row += kThreads) {
      float square = 0;
      for (int c = 0; c < kWidth; ++c) square += n[row * kStride + c] * n[row * kStride + c];
      const float inside = gaussian ? -0.5f * square : 0.0f;
      term[row] = row < count ? inside : -std::numeric_limits<float>::infinity();
    }
  }
};

template <int kD, int kP> struct Shared {
  Tile<kRows, kD> x;
  Tile<kRows, kP> u;
  Tile<kLandmarks, kD> w;
  Tile<kLandmarks, kP> y;
  alignas(16) float c[kRows * kWeightStride], e[kRows * kWeightStride];
  float row[kRows], landmark[kLandmarks];  // terms of the exponent
};

struct Lane {
  int lane, warp;
  __device__ Lane() : lane(threadIdx.x % cuda::kWarp), warp(threadIdx.x / cuda::kWarp) {}
  [[nodiscard]] __device__ int row(int i) const { return kOwn * warp + i; }
};

/// Products of the warp's rows with landmarks lane, lane + 32, …
template <int kWidth> __device__ void scores(const Lane& at, const Tile<kRows, kWidth>& rows,
                                             const Tile<kLandmarks, kWidth>& landmarks, int count,
                                             float (&product)[kOwn][kLandmarks / cuda::kWarp]) {
#pragma unroll 2
  for (int k = 0; k < kWidth; k += 4) {
    Four<float> own[kOwn];
#pragma unroll
    for (int i = 0; i < kOwn; ++i) own[i] = rows.four(at.row(i), k);
#pragma unroll
    for (int j = 0; j < kLandmarks / cuda::kWarp; ++j) {
      if (cuda::kWarp * j >= count) break;
      const Four<float> other = landmarks.four(at.lane + cuda::kWarp * j, k);
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
#pragma unroll
        for (int q = 0; q < 4; ++q) product[i][j] += own[i].x[q] * other.x[q];
      }
    }
  }
}

/// C and E of the warp's rows to shared memory; sums: of E's rows, on every lane.
template <bool kGradient, int kD, int kP>
__device__ void weights(const Lane& at, Shared<kD, kP>& shared, int landmarks,
                        float (&sums)[kOwn]) {
  float c[kOwn][kLandmarks / cuda::kWarp] = {}, e[kOwn][kLandmarks / cuda::kWarp] = {};
  scores(at, shared.x, shared.w, landmarks, c);
  if constexpr (kGradient) scores(at, shared.u, shared.y, landmarks, e);
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
#pragma unroll
    for (int j = 0; j < kLandmarks / cuda::kWarp; ++j) {
      const int landmark = at.lane + cuda::kWarp * j;
      if (cuda::kWarp * j >= landmarks) break;
      const float weight = math::exp(c[i][j] + shared.row[at.row(i)] + shared.landmark[landmark]);
      shared.c[at.row(i) * kWeightStride + landmark] = weight;
      if constexpr (kGradient) {
        shared.e[at.row(i) * kWeightStride + landmark] = weight * e[i][j];
        sums[i] += weight * e[i][j];
      }
    }
    if constexpr (kGradient) {
      sums[i] = cuda::warp_reduce<cuda::kWarp>(sums[i]);
    }
  }
}

/// Weights [own rows, landmarks] times landmarks' rows: a lane's columns of the warp's rows.
template <int kWidth> __device__ void rows_times(const Lane& at, const float* weight,
                                                 const Tile<kLandmarks, kWidth>& other,
                                                 int landmarks,
                                                 float (&total)[kOwn][kColumns<kWidth>]) {
#pragma unroll 2
  for (int j = 0; j < landmarks; j += 4) {  // beyond them weights and rows are 0
    Four<float> own[kOwn];
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      own[i] = Four<float>::at(&weight[at.row(i) * kWeightStride + j]);
    }
#pragma unroll
    for (int q = 0; q < 4; ++q) {
#pragma unroll
      for (int k = 0; k < kColumns<kWidth>; ++k) {
        const float n = other.at(j + q, at.lane + cuda::kWarp * k);
#pragma unroll
        for (int i = 0; i < kOwn; ++i) total[i][k] += own[i].x[q] * n;
      }
    }
  }
}

/// total += weights^T [own landmarks, rows] times rows: a lane's columns of the warp's landmarks.
template <int kWidth>
__device__ void landmarks_times(const Lane& at, const float* weight,
                                const Tile<kRows, kWidth>& other, int rows,
                                float (&total)[kOwnLandmarks][kColumns<kWidth>]) {
#pragma unroll 2
  for (int r = 0; r < rows; ++r) {
    const float* const own = &weight[r * kWeightStride + kOwnLandmarks * at.warp];
    float n[kColumns<kWidth>];
#pragma unroll
    for (int k = 0; k < kColumns<kWidth>; ++k) n[k] = other.at(r, at.lane + cuda::kWarp * k);
#pragma unroll
    for (int i = 0; i < kOwnLandmarks; i += 4) {
      const Four<float> four = Four<float>::at(&own[i]);
#pragma unroll
      for (int q = 0; q < 4; ++q) {
#pragma unroll
        for (int k = 0; k < kColumns<kWidth>; ++k) total[i + q][k] += four.x[q] * n[k];
      }
    }
  }
}

/// total -= sum times own rows, from `first` on: what the Gaussian's norms add to a gradient.
template <int kOwnRows, int kCount, int kWidth>
__device__ void subtract_own(const Lane& at, const Tile<kCount, kWidth>& own, int first,
                             const float (&sum)[kOwnRows],
                             float (&total)[kOwnRows][kColumns<kWidth>]) {
#pragma unroll
  for (int i = 0; i < kOwnRows; ++i) {
#pragma unroll
    for (int k = 0; k < kColumns<kWidth>; ++k) {
      total[i][k] -= sum[i] * own.at(first + i, at.lane + cuda::kWarp * k);
    }
  }
}

/// Own rows, from `first` on, times their factors to target [count, width].
template <int kOwnRows, int kOuts>
__device__ void store(const Lane& at, const float (&total)[kOwnRows][kOuts], int first,
                      float* target, int count, std::int64_t width,
                      const RowFactors& factors = {}) {
#pragma unroll
  for (int i = 0; i < kOwnRows; ++i) {
    if (first + i >= count) break;
    const float factor = factors.of(first + i);
#pragma unroll
    for (int k = 0; k < kOuts; ++k) {
      const int c = at.lane + cuda::kWarp * k;
      if (c < width) target[(first + i) * width + c] = factor * total[i][k];
    }
  }
}

/// Sums over rows of the warp's landmarks, in a lane's registers.
template <int kD, int kP> struct LandmarkTotals {
  float d[kOwnLandmarks][kColumns<kD>] = {};
  float values[kOwnLandmarks][kColumns<kP>] = {};
  float sum = 0;  // of E's column `lane` of the warp's
};

/// dx and C y of the warp's rows.
template <Form kForm, int kD, int kP>
__device__ void finish_rows(const Lane& at, const Shared<kD, kP>& shared, const Sizes& s,
                            const Arrays& in, std::int64_t row, int count, const RowFactors& of_x,
                            const RowFactors& of_u, const float (&sums)[kOwn]) {
  const int landmarks = static_cast<int>(s.landmarks), own = at.row(0);
  if constexpr (has_gradient(kForm)) {
    float d[kOwn][kColumns<kD>] = {};
    rows_times(at, shared.e, shared.w, landmarks, d);
    if (s.gaussian) subtract_own(at, shared.x, own, sums, d);
    store(at, d, own, in.dx + row * s.width, count, s.width, of_x);
  }
  if constexpr (has_row_values(kForm)) {
    float values[kOwn][kColumns<kP>] = {};
    rows_times(at, shared.c, shared.y, landmarks, values);
    store(at, values, own, in.cy + row * s.factor, count, s.factor,
          has_gradient(kForm) ? of_u : RowFactors{});
  }
}

/// This chunk's part of dw and C^T u.
template <Form kForm, int kD, int kP>
__device__ void finish_landmarks(const Lane& at, const Shared<kD, kP>& shared, const Sizes& s,
                                 const Arrays& in, LandmarkTotals<kD, kP>& totals) {
  const int landmarks = static_cast<int>(s.landmarks), own = kOwnLandmarks * at.warp;
  const std::int64_t part = blockIdx.x * s.landmarks;
  if constexpr (has_gradient(kForm)) {
    float sums[kOwnLandmarks];
#pragma unroll
    for (int i = 0; i < kOwnLandmarks; ++i) sums[i] = __shfl_sync(cuda::kAllLanes, totals.sum, i);
    if (s.gaussian) subtract_own(at, shared.w, own, sums, totals.d);
    store(at, totals.d, own, in.dw + part * s.width, landmarks, s.width);
  }
  if constexpr (has_landmark_values(kForm)) {
    store(at, totals.values, own, in.cu + part * s.factor, landmarks, s.factor);
  }
}

// Wide rows fill a multiprocessor's shared memory with one block: its registers need not do for
// two.
template <int kD, int kP, Form kForm> __global__ void __launch_bounds__(kThreads, kD > 32 ? 1 : 2)
    form_kernel(Sizes s, Arrays in) {
  auto& shared = *reinterpret_cast<Shared<kD, kP>*>(cuda::dynamic_shared());
  const Lane at;
  const std::int64_t g = blockIdx.x / s.chunks, chunk = blockIdx.x % s.chunks;
  const std::int64_t begin = g * s.rows + chunk * kChunkRows;  // of all heads' rows
  const int rows = static_cast<int>(math::min(kChunkRows, s.rows - chunk * kChunkRows));
  const int landmarks = static_cast<int>(s.landmarks);
  const bool owns_landmarks = kForm != Form::times && kOwnLandmarks * at.warp < landmarks;

  shared.w.load(in.w + g * s.landmarks * s.width, s.landmarks, s.width);
  if constexpr (kForm != Form::transposed) {
    shared.y.load(in.y + g * s.landmarks * s.factor, s.landmarks, s.factor);
  }
  __syncthreads();
  shared.w.terms(landmarks, s.gaussian, shared.landmark);
  LandmarkTotals<kD, kP> totals;
  for (int from = 0; from < rows; from += kRows) {
    const int count = math::min(kRows, rows - from);
    const std::int64_t row = begin + from;
    const RowFactors of_x = in.of_x.from(s, g, chunk * kChunkRows + from);
    const RowFactors of_u = in.of_u.from(s, g, chunk * kChunkRows + from);
    __syncthreads();  // everybody is done with the last rows
    shared.x.load(in.x + row * s.width, count, s.width, of_x);
    if constexpr (kForm != Form::times) {
      shared.u.load(in.u + row * s.factor, count, s.factor, of_u);
    }
    __syncthreads();
    shared.x.terms(count, s.gaussian, shared.row);
    __syncthreads();
    float sums[kOwn] = {};
    weights<has_gradient(kForm)>(at, shared, landmarks, sums);
    __syncthreads();
    finish_rows<kForm>(at, shared, s, in, row, count, of_x, of_u, sums);
    if (!owns_landmarks) continue;
    if constexpr (has_gradient(kForm)) {
      landmarks_times(at, shared.e, shared.x, count, totals.d);
      const int own = kOwnLandmarks * at.warp + at.lane % kOwnLandmarks;
      for (int r = 0; r < count; ++r) totals.sum += shared.e[r * kWeightStride + own];
    }
    if constexpr (has_landmark_values(kForm)) {
      landmarks_times(at, shared.c, shared.u, count, totals.values);
    }
  }
  if (owns_landmarks) finish_landmarks<kForm>(at, shared, s, in, totals);
}

}  // namespace

void fp32_form(Form form, const Sizes& s, const Arrays& in) {
  dispatch(form, s, [&]<int kD, int kP, Form kForm>() {
    start("kernel products", form_kernel<kD, kP, kForm>, s, in, sizeof(Shared<kD, kP>));
  });
}

std::size_t fp32_bytes(std::int64_t width, std::int64_t factor) {
  return dispatch_widths(width, factor, [&]<int kD, int kP>() { return sizeof(Shared<kD, kP>); });
}

}  // namespace skytape::attention::kernel_cuda
