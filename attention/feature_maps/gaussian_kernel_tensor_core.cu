// Fused kernel products on tensor cores: operands of products are rounded to tf32 or bf16, as are
// the rows that norms are taken of, so k(x, x) is 1; exponentials and sums stay f32. Exponents' terms
// carry a factor log2(e), so that an exponential is one instruction.
//
// A block of eight warps takes 128 rows at a time against up to 128 landmarks. Its work is the same
// twice, with the sides exchanged. For own rows of either side, 16 a warp, against all rows of the
// other, 16 at a time:
//
//   C = exp(x.w - norms)    E = C (u.y)    d += E first    values += C second    sums += E 1
//
// with (first, second) the other side's (w, y) or (x, u). So rows end up with dx and C y, landmarks
// with dw and C^T u, and each result has one owner who adds it up in order. Scores are formed twice
// in backward: two products of seven, for which C and E never leave a lane's registers
// (tensor_core.hpp).
#include <cstdint>
#include <limits>
#include <numbers>

#include "attention/feature_maps/gaussian_kernel_cuda.hpp"
#include "tensor/gemm/precision.hpp"
#include "tensor/gemm/tensor_core.hpp"
#include "tensor/launch/math.hpp"

namespace skytape::attention::kernel_cuda {
namespace {

using cuda::Accumulator;
using cuda::kMmaK;
using cuda::TensorCore;
using cuda::WarpRows;

constexpr int kTile = 128;            // rows of either side
constexpr int kOwn = kTile / kWarps;  // of a warp
constexpr float kLog2E = std::numbers::log2e_v<float>;
static_assert(kOwn == cuda::kMmaM && kTile >= kLandmarks && kChunkRows % kTile == 0);

/// Over the four lanes of a row.
__device__ float over_row(float x) { return cuda::warp_reduce_up<1, 4>(x); }

/// Rows of one array in shared memory, rounded.
template <class Core, int kWidth> struct Tile {
  using Number = typename Core::Number;
  using FragmentA = typename Core::FragmentA;
  using FragmentB = typename Core::FragmentB;
  static constexpr int kStride = kWidth + 8;  // of a row: eight rows then touch every bank
  static constexpr int kSteps = kWidth / kMmaK;
  static constexpr int kOuts = kWidth / 8;
  static constexpr int kQuads = kWidth / 4;  // of a row
  alignas(16) Number n[kTile * kStride];

  __device__ float at(int row, int c) const { return Core::value(n[row * kStride + c]); }

  /// Rows of source [count, width] times their factors, zeros beyond.
  __device__ void load(const float* source, std::int64_t count, std::int64_t width,
                       const RowFactors& factors = {}) {
    each_four(source, count, width, factors, [](int, float) {});
  }
  /// The same with each row's term of the exponent, base 2, `less` (null: 0) taken from it: of rows
  /// beyond, C is 0.
  __device__ void load(const float* source, std::int64_t count, std::int64_t width, bool norms,
                       float* term, const RowFactors& factors = {}, const float* less = nullptr) {
    static_assert(cuda::kWarp % kQuads == 0 && kTile * kQuads % kThreads == 0);
    each_four(source, count, width, factors, [&](int e, float square) {
      square = cuda::warp_reduce<kQuads>(square);
      if (e % kQuads != 0) return;
      const int row = e / kQuads;
      const float inside = norms ? -0.5f * square : 0.0f;
      term[row] = row >= count      ? -std::numeric_limits<float>::infinity()
                  : less == nullptr ? kLog2E * inside
                                    : kLog2E * (inside - less[row]);
    });
  }

  /// The warp's own rows as fragments A.
  __device__ void own_rows(const WarpRows& at, FragmentA (&own)[kSteps]) const {
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      if constexpr (Core::kHasLdmatrix) {
        own[s] = Core::ldmatrix_a(n + at.row * kStride + kMmaK * s, kStride);
      } else {
        const Number* const a = n + at.row_of(0) * kStride + kMmaK * s + 2 * at.t;
        const Number* const b = a + 8 * kStride;
        own[s] = Core::fragment_a({{a[0], a[1], a[8], a[9]}, {b[0], b[1], b[8], b[9]}});
      }
    }
  }
  /// Own rows times rows [first, first + 16), over the width: eight columns each.
  __device__ void scores(const WarpRows& at, const FragmentA (&own)[kSteps], int first,
                         Accumulator (&sums)[2]) const {
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      FragmentB two[2];
      if constexpr (Core::kHasLdmatrix) {
        Core::ldmatrix_b(n + first * kStride + kMmaK * s, kStride, two);
      } else {
        const Number* const row = n + (first + at.g) * kStride + kMmaK * s + 2 * at.t;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const Number* const m = row + 8 * half * kStride;
          two[half] = Core::fragment_b(m[0], m[1], m[8], m[9]);
        }
      }
      Core::mma(sums[0], own[s], two[0]);
      Core::mma(sums[1], own[s], two[1]);
    }
  }
  /// total += weights, of 16 own rows, times rows [first, first + 16).
  __device__ void add_weighted(const WarpRows& at, const FragmentA& weights, int first,
                               Accumulator (&total)[kOuts]) const {
    static_assert(kOuts % 2 == 0);
#pragma unroll
    for (int c = 0; c < kOuts; c += 2) {
      FragmentB two[2];
      if constexpr (Core::kHasLdmatrix) {
        Core::ldmatrix_b_trans(n + first * kStride + 8 * c, kStride, two);
      } else {
        const Number* const row = n + (first + 2 * at.t) * kStride + 8 * c + at.g;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const Number* const m = row + 8 * half;
          two[half] = Core::fragment_b(m[0], m[kStride], m[8 * kStride], m[9 * kStride]);
        }
      }
      Core::mma(total[c], weights, two[0]);
      Core::mma(total[c + 1], weights, two[1]);
    }
  }

 private:
  /// Loads this thread's share of the rows, four numbers at a time, and calls f(e, square) for the
  /// e-th four and the sum of their squares.
  template <class F> __device__ void each_four(const float* source, std::int64_t count,
                                               std::int64_t width, const RowFactors& factors,
                                               const F& f) {
    const int rows = static_cast<int>(count), columns = static_cast<int>(width);
    const bool whole = columns % 4 == 0 && Four<float>::aligned(source);
#pragma unroll(kWidth > 48 ? 2 : 4)
    for (int e = threadIdx.x; e < kTile * kQuads; e += kThreads) {
      const int row = e / kQuads, c = 4 * (e % kQuads);
      const float* const from = source + row * columns + c;
      Four<float> four{};
      if (row < rows && c < columns) {
        if (whole) {
          four = Four<float>::at(from);
        } else {
          for (int i = 0; i < 4 && c + i < columns; ++i) four.x[i] = from[i];
        }
      }
      const float factor = row < rows ? factors.of(row) : 0.0f;
      Four<Number> numbers;
      float square = 0;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        numbers.x[i] = Core::rounded(four.x[i] * factor);
        square += Core::value(numbers.x[i]) * Core::value(numbers.x[i]);
      }
      numbers.store(&n[row * kStride + c]);
      f(e, square);
    }
  }
};

/// x and u, or w and y, of a tile's rows.
template <class Core, int kD, int kP> struct Side {
  Tile<Core, kD> first;
  Tile<Core, kP> second;
  float term[kTile];  // of the exponent, base 2
};
template <class Core, int kD, int kP> struct Shared { Side<Core, kD, kP> rows, landmarks; };

/// What own rows of a side add up, in a lane's registers.
template <int kD, int kP> struct Totals {
  Accumulator d[kD / 8];       // E first
  Accumulator values[kP / 8];  // C second
  float sums[2] = {};          // E 1, this lane's part
};

/// Weights as a fragment A.
template <class Core>
__device__ typename Core::FragmentA as_fragment_a(const Accumulator (&weights)[2],
                                                  float (&sums)[2]) {
  const typename Core::FragmentA a = Core::rounded_a(weights);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[half] += Core::entry(a, half, i);
  }
  return a;
}

/// Adds what the first `count` rows of the other side give to own rows. The sums of E are those of
/// its rounded entries: then E w - row_sum(E) x is a sum of E_ij (w_j - x_i), small where these are.
template <bool kGradient, bool kValues, class Core, int kD, int kP>
__device__ void walk(const WarpRows& at, const Side<Core, kD, kP>& own,
                     const Side<Core, kD, kP>& other, int count, Totals<kD, kP>& totals) {
  typename Core::FragmentA first[kD / kMmaK], second[kP / kMmaK];
  own.first.own_rows(at, first);
  if constexpr (kGradient) own.second.own_rows(at, second);
  const float term[2] = {own.term[at.row_of(0)], own.term[at.row_of(1)]};
#pragma unroll 1
  for (int from = 0; from < count; from += kMmaK) {
    Accumulator c[2], e[2];  // this lane's part of C and E
    other.first.scores(at, first, from, c);
    if constexpr (kGradient) other.second.scores(at, second, from, e);
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const float* const column = other.term + from + 8 * n + 2 * at.t;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& weight = c[n].x[i / 2][i % 2];
        weight = cuda::ptx::exp2(kLog2E * weight + (term[i / 2] + column[i % 2]));
        if constexpr (kGradient) e[n].x[i / 2][i % 2] *= weight;
      }
    }
    if constexpr (kGradient) {
      other.first.add_weighted(at, as_fragment_a<Core>(e, totals.sums), from, totals.d);
    }
    if constexpr (kValues) {
      float ignored[2] = {};
      other.second.add_weighted(at, as_fragment_a<Core>(c, ignored), from, totals.values);
    }
  }
}

/// The largest product of each own row with the other side's, and the first row that gives it.
struct Largest {
  float value[2];
  std::int32_t position[2];

  template <class Core, int kD>
  __device__ Largest(const WarpRows& at, const Tile<Core, kD>& own_rows,
                     const Tile<Core, kD>& other, int count)
      : value{-std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()},
        position{0, 0} {
    typename Core::FragmentA own[kD / kMmaK];
    own_rows.own_rows(at, own);
#pragma unroll 2
    for (int from = 0; from < count; from += kMmaK) {
      Accumulator products[2];
      other.scores(at, own, from, products);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int half = i / 2 % 2, j = from + i / 4 * 8 + 2 * at.t + i % 2;
        const float product = products[i / 4].x[half][i % 2];
        const bool better = j < count && product > value[half];  // of equal ones the first stays
        value[half] = better ? product : value[half];
        position[half] = better ? j : position[half];
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {  // over the four lanes of a row
#pragma unroll
      for (int lanes = 1; lanes < 4; lanes *= 2) {
        const float theirs = __shfl_xor_sync(cuda::kAllLanes, value[half], lanes);
        consider(half, theirs, __shfl_xor_sync(cuda::kAllLanes, position[half], lanes));
      }
    }
  }
  /// To the call's arrays [G, N], from row `first` of these on.
  __device__ void store(const WarpRows& at, const Arrays& in, std::int64_t first, int count) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = at.row_of(half);
      if (at.t != 0 || row >= count) continue;
      in.largest[first + row] = value[half];
      in.position[first + row] = position[half];
    }
  }

 private:
  __device__ void consider(int half, float product, std::int32_t j) {
    const bool better = product > value[half] || (product == value[half] && j < position[half]);
    value[half] = better ? product : value[half];
    position[half] = better ? j : position[half];
  }
};

/// d -= sums times own rows: what the Gaussian's norms add to a gradient.
template <class Core, int kD, int kP> __device__ void subtract_own(const WarpRows& at,
                                                                   const Tile<Core, kD>& own,
                                                                   Totals<kD, kP>& totals) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float sum = over_row(totals.sums[half]);
#pragma unroll
    for (int c = 0; c < kD / 8; ++c) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        totals.d[c].x[half][e] -= sum * own.at(at.row_of(half), 8 * c + 2 * at.t + e);
      }
    }
  }
}

/// Own rows times their factors to target [count, width].
template <int kOuts> __device__ void store(const WarpRows& at, const Accumulator (&total)[kOuts],
                                           const RowFactors& factors, float* target, int count,
                                           std::int64_t width) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = at.row_of(half);
    if (row >= count) continue;
    const float factor = factors.of(row);
#pragma unroll
    for (int c = 0; c < kOuts; ++c) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int channel = 8 * c + 2 * at.t + e;
        if (channel < width) target[row * width + channel] = factor * total[c].x[half][e];
      }
    }
  }
}

/// The totals of own rows, times the factors, to d [.., D], if it is wanted, and values [.., P], from
/// row `first` of these on.
template <bool kGradient, bool kValues, class Core, int kD, int kP>
__device__ void finish(const WarpRows& at, const Tile<Core, kD>& own, const Sizes& s,
                       Totals<kD, kP>& totals, float* d, float* values, std::int64_t first,
                       int count, const RowFactors& of_d = {}, const RowFactors& of_values = {}) {
  if constexpr (kGradient) {
    if (d != nullptr) {
      if (s.gaussian) subtract_own(at, own, totals);
      store(at, totals.d, of_d, d + first * s.width, count, s.width);
    }
  }
  if constexpr (kValues) {
    store(at, totals.values, of_values, values + first * s.factor, count, s.factor);
  }
}

/// Finds the largest products of own rows, and takes them from their exponents.
template <class Core, int kD, int kP>
__device__ void stabilise(const WarpRows& at, const Arrays& in, std::int64_t first, int count,
                          int landmarks, Side<Core, kD, kP>& rows, const Tile<Core, kD>& other) {
  const Largest found(at, rows.first, other, landmarks);
  found.store(at, in, first, count);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (at.t == 0) rows.term[at.row_of(half)] -= kLog2E * found.value[half];
  }
  __syncwarp();
}

/// Blocks that a multiprocessor holds at least; 0: as the compiler finds best. Left alone, it spills
/// registers of wide rows' gradients for a second one, which the values of wide rows would just miss,
/// and of tf32's narrow rows for a fourth.
template <Precision kPrecision, int kD, int kP, Form kForm> inline constexpr int kResident =
    kPrecision == Precision::bf16&& kD > 32 && !has_gradient(kForm) ? 2
    : kD + kP > 64                                                  ? 1
    : kPrecision == Precision::tf32 && !has_gradient(kForm)         ? 3
                                                                    : 0;

/// Of random features dw is not wanted. Where C^T u is, E's part of the walk is done for nothing:
/// without a walk of its own the kernel stays within its registers.
template <Form kForm> __device__ bool has_landmark_results(const Arrays& in) {
  return has_landmark_values(kForm) || in.dw != nullptr;
}

template <Precision kPrecision, int kD, int kP, Form kForm>
__global__ void __launch_bounds__(kThreads, kResident<kPrecision, kD, kP, kForm>)
    form_kernel(Sizes s, Arrays in) {
  using Memory = Shared<TensorCore<kPrecision>, kD, kP>;
  constexpr bool kGradient = has_gradient(kForm), kValues = has_landmark_values(kForm);
  auto& shared = *reinterpret_cast<Memory*>(cuda::dynamic_shared());
  const WarpRows at;
  const std::int64_t g = blockIdx.x / s.chunks, chunk = blockIdx.x % s.chunks;
  const std::int64_t begin = g * s.rows + chunk * kChunkRows;  // of all heads' rows
  const int rows = static_cast<int>(math::min(kChunkRows, s.rows - chunk * kChunkRows));
  const int landmarks = static_cast<int>(s.landmarks);

  shared.landmarks.first.load(in.w + g * s.landmarks * s.width, s.landmarks, s.width,
                              s.gaussian && !s.features, shared.landmarks.term);
  if constexpr (kForm != Form::transposed) {
    shared.landmarks.second.load(in.y + g * s.landmarks * s.factor, s.landmarks, s.factor);
  }
  Totals<kD, kP> of_landmarks;
  for (int from = 0; from < rows; from += kTile) {
    const int count = math::min(kTile, rows - from);
    const std::int64_t first = begin + from;
    const RowFactors of_x = in.of_x.from(s, g, chunk * kChunkRows + from);
    const RowFactors of_u = in.of_u.from(s, g, chunk * kChunkRows + from);
    __syncthreads();  // everybody is done with the last rows
    shared.rows.first.load(in.x + first * s.width, count, s.width, s.gaussian, shared.rows.term,
                           of_x, in.c == nullptr ? nullptr : in.c + first);
    if constexpr (kForm != Form::times) {
      shared.rows.second.load(in.u + first * s.factor, count, s.factor, of_u);
    }
    __syncthreads();
    if constexpr (kForm == Form::times) {
      if (in.largest != nullptr && at.row < count) {
        stabilise(at, in, first, count, landmarks, shared.rows, shared.landmarks.first);
      }
    }
    if constexpr (kForm != Form::transposed) {
      if (at.row < count) {
        Totals<kD, kP> of_rows;
        walk<kGradient, has_row_values(kForm)>(at, shared.rows, shared.landmarks, landmarks,
                                               of_rows);
        finish<kGradient, has_row_values(kForm)>(at, shared.rows.first, s, of_rows, in.dx, in.cy,
                                                 first, count, of_x,
                                                 kGradient ? of_u : RowFactors{});
      }
    }
    if constexpr (kForm != Form::times) {
      if (at.row >= landmarks || !has_landmark_results<kForm>(in)) continue;
      walk<kGradient, kValues>(at, shared.landmarks, shared.rows, count, of_landmarks);
    }
  }
  if constexpr (kForm != Form::times) {
    if (at.row >= landmarks || !has_landmark_results<kForm>(in)) return;
    finish<kGradient, kValues>(at, shared.landmarks.first, s, of_landmarks, in.dw, in.cu,
                               blockIdx.x * s.landmarks, landmarks);
  }
}

/// A block's rows as in form_kernel. For a fourth block of a multiprocessor, registers would be spilled.
template <Precision kPrecision, int kD> __global__ void __launch_bounds__(kThreads, 3)
    maxima_kernel(Sizes s, Arrays in) {
  using Memory = Tile<TensorCore<kPrecision>, kD>[2];
  auto& [x, w] = *reinterpret_cast<Memory*>(cuda::dynamic_shared());
  const WarpRows at;
  const std::int64_t g = blockIdx.x / s.chunks, chunk = blockIdx.x % s.chunks;
  const std::int64_t begin = g * s.rows + chunk * kChunkRows;  // of all heads' rows
  const int rows = static_cast<int>(math::min(kChunkRows, s.rows - chunk * kChunkRows));
  w.load(in.w + g * s.landmarks * s.width, s.landmarks, s.width);
  for (int from = 0; from < rows; from += kTile) {
    const int count = math::min(kTile, rows - from);
    __syncthreads();  // everybody is done with the last rows
    x.load(in.x + (begin + from) * s.width, count, s.width);
    __syncthreads();
    if (at.row >= count) continue;
    const Largest found(at, x, w, static_cast<int>(s.landmarks));
    found.store(at, in, begin + from, count);
  }
}

template <Precision kPrecision>
void form_at(Form form, const Sizes& s, const Arrays& in, const Work& work) {
  dispatch(form, s, [&]<int kD, int kP, Form kForm>() {
    start("kernel products on tensor cores", form_kernel<kPrecision, kD, kP, kForm>, s, in,
          sizeof(Shared<TensorCore<kPrecision>, kD, kP>), work);
  });
}

template <Precision kPrecision> void maxima_at(const Sizes& s, const Arrays& in, const Work& work) {
  const auto run = [&]<int kD>() {
    start("row maxima on tensor cores", maxima_kernel<kPrecision, kD>, s, in,
          2 * sizeof(Tile<TensorCore<kPrecision>, kD>), work);
  };
  if (s.width <= 32) {
    run.template operator()<32>();
  } else {
    run.template operator()<64>();
  }
}

/// So many multiply-adds for each row and landmark.
Work products_of(const Sizes& s, std::int64_t multiply_adds) {
  return {.multiply_adds = s.heads * s.rows * s.landmarks * multiply_adds, .product = true};
}

/// f.operator()<precision>() for tf32 or bf16.
template <class F> void at_precision(const F& f) {
  if (precision(Device::cuda) == Precision::tf32) {
    f.template operator()<Precision::tf32>();
  } else {
    f.template operator()<Precision::bf16>();
  }
}

}  // namespace

void tensor_core_form(Form form, const Sizes& s, const Arrays& in) {
  const bool rows = form != Form::transposed;
  const bool landmarks = has_landmark_values(form) || in.dw != nullptr;
  const int sides = (rows ? 1 : 0) + (landmarks ? 1 : 0);
  const std::int64_t of_side = has_gradient(form) ? 2 * s.width + s.factor : s.width;
  const std::int64_t maxima = in.largest == nullptr ? 0 : s.width;
  const Work work = products_of(s, sides * of_side + s.factor + maxima);
  at_precision([&]<Precision kPrecision>() { form_at<kPrecision>(form, s, in, work); });
}

void tensor_core_maxima(const Sizes& s, const Arrays& in) {
  const Work work = products_of(s, s.width);
  at_precision([&]<Precision kPrecision>() { maxima_at<kPrecision>(s, in, work); });
}

}  // namespace skytape::attention::kernel_cuda
