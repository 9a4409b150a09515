// Fused kernel products on tensor cores: operands of products are rounded to tf32 or bf16, as are
// the rows that norms are taken of, so k(x, x) is 1; exponentials and sums stay f32.
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
#include <bit>
#include <cstdint>
#include <limits>

#include "attention/feature_maps/gaussian_kernel_cuda.hpp"
#include "tensor/gemm/precision.hpp"
#include "tensor/gemm/tensor_core.hpp"
#include "tensor/launch/math.hpp"

namespace skytape::attention::kernel_cuda {
namespace {

using cuda::Sums;
using cuda::TensorCore;

constexpr int kTile = 128;            // rows of either side
constexpr int kOwn = kTile / kWarps;  // of a warp
constexpr int kChunk = 16;            // inner index of one product
constexpr unsigned kAllLanes = 0xffffffffu;
static_assert(kOwn == 16 && kTile >= kLandmarks && kChunkRows % kTile == 0);

__device__ float value(std::uint16_t bf16) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bf16) << 16);
}
__device__ float value(std::uint32_t tf32) { return std::bit_cast<float>(tf32); }

/// Two neighbours in one load.
__device__ std::uint32_t pair_at(const std::uint16_t* n) {
  std::uint32_t word = 0;
  __builtin_memcpy(&word, __builtin_assume_aligned(n, sizeof word), sizeof word);
  return word;
}
/// A lane's operands from rows of a tile, at its columns 2t of a product's 16.
__device__ TensorCore<Precision::bf16>::Left left_of(const std::uint16_t* a,
                                                     const std::uint16_t* b) {
  return {{pair_at(a), pair_at(b), pair_at(a + 8), pair_at(b + 8)}};
}
__device__ TensorCore<Precision::tf32>::Left left_of(const std::uint32_t* a,
                                                     const std::uint32_t* b) {
  return TensorCore<Precision::tf32>::left({{a[0], a[1], a[8], a[9]}, {b[0], b[1], b[8], b[9]}});
}
__device__ TensorCore<Precision::bf16>::Right right_of(const std::uint16_t* n) {
  return {{pair_at(n), pair_at(n + 8)}};
}
__device__ TensorCore<Precision::tf32>::Right right_of(const std::uint32_t* n) {
  return TensorCore<Precision::tf32>::right(n[0], n[1], n[8], n[9]);
}

/// A lane's rows g, g + 8 and columns 2t, 2t + 1 of its warp's 16 rows.
struct Place {
  int g, t, row;  // row: the warp's first
  __device__ Place()
      : g(threadIdx.x % cuda::kWarp / 4),
        t(threadIdx.x % 4),
        row(threadIdx.x / cuda::kWarp * kOwn) {}
  __device__ int row_of(int half) const { return row + g + 8 * half; }
};

/// Over the four lanes of a row.
__device__ float over_row(float x) {
  x += __shfl_xor_sync(kAllLanes, x, 1);
  return x + __shfl_xor_sync(kAllLanes, x, 2);
}

/// Rows of one array in shared memory, rounded.
template <class Core, int kWidth> struct Tile {
  using Number = typename Core::Number;
  using Left = typename Core::Left;
  static constexpr int kStride = kWidth + 8;  // of a row: eight rows then touch every bank
  static constexpr int kSteps = kWidth / kChunk;
  static constexpr int kOuts = kWidth / 8;
  static constexpr int kQuads = kWidth / 4;  // of a row
  alignas(16) Number n[kTile * kStride];

  __device__ float at(int row, int c) const { return value(n[row * kStride + c]); }

  /// Rows of source [count, width] times their factors, zeros beyond.
  __device__ void load(const float* source, std::int64_t count, std::int64_t width,
                       const RowFactors& factors = {}) {
    for (int e = threadIdx.x; e < kTile * kQuads; e += kThreads) {
      (void)load_four(source, count, width, factors, e);
    }
  }
  /// The same with each row's term of the exponent, `less` (null: 0) taken from it: of rows beyond, C
  /// is 0.
  __device__ void load(const float* source, std::int64_t count, std::int64_t width, bool norms,
                       float* term, const RowFactors& factors = {}, const float* less = nullptr) {
    static_assert(cuda::kWarp % kQuads == 0 && kTile * kQuads % kThreads == 0);
    for (int e = threadIdx.x; e < kTile * kQuads; e += kThreads) {
      float square = load_four(source, count, width, factors, e);
#pragma unroll
      for (int lanes = kQuads / 2; lanes > 0; lanes /= 2) {
        square += __shfl_xor_sync(kAllLanes, square, lanes);
      }
      if (e % kQuads != 0) continue;
      const int row = e / kQuads;
      const float inside = norms ? -0.5f * square : 0.0f;
      term[row] = row >= count      ? -std::numeric_limits<float>::infinity()
                  : less == nullptr ? inside
                                    : inside - less[row];
    }
  }

  /// The warp's own rows as left operands.
  __device__ void own_rows(const Place& at, Left (&own)[kSteps]) const {
    const Number* const a = n + at.row_of(0) * kStride + 2 * at.t;
    const Number* const b = n + at.row_of(1) * kStride + 2 * at.t;
#pragma unroll
    for (int s = 0; s < kSteps; ++s) own[s] = left_of(a + kChunk * s, b + kChunk * s);
  }
  /// Own rows times rows [first, first + 8), over the width.
  __device__ Sums scores(const Place& at, const Left (&own)[kSteps], int first) const {
    Sums sums;
    const Number* const row = n + (first + at.g) * kStride + 2 * at.t;
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      Core::multiply_add(sums, own[s], right_of(row + kChunk * s));
    }
    return sums;
  }
  /// total += weights, of 16 own rows, times rows [first, first + 16).
  __device__ void add_weighted(const Place& at, const Left& weights, int first,
                               Sums (&total)[kOuts]) const {
    const Number* const row = n + (first + 2 * at.t) * kStride + at.g;
#pragma unroll
    for (int c = 0; c < kOuts; ++c) {
      const Number* const m = row + 8 * c;
      Core::multiply_add(total[c], weights,
                         Core::right(m[0], m[kStride], m[8 * kStride], m[9 * kStride]));
    }
  }

 private:
  /// The e-th four numbers; returns the sum of their squares.
  __device__ float load_four(const float* source, std::int64_t count, std::int64_t width,
                             const RowFactors& factors, int e) {
    const int row = e / kQuads, c = 4 * (e % kQuads);
    const Four<float> four = cuda::load_four(source, row, count, width, c);
    const float factor = row < count ? factors.of(row) : 0.0f;
    Four<Number> numbers;
    float square = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      numbers.x[i] = Core::rounded(four.x[i] * factor);
      square += value(numbers.x[i]) * value(numbers.x[i]);
    }
    numbers.store(&n[row * kStride + c]);
    return square;
  }
};

/// x and u, or w and y, of a tile's rows.
template <class Core, int kD, int kP> struct Side {
  Tile<Core, kD> first;
  Tile<Core, kP> second;
  float term[kTile];  // of the exponent
};
template <class Core, int kD, int kP> struct Shared { Side<Core, kD, kP> rows, landmarks; };

/// What own rows of a side add up, in a lane's registers.
template <int kD, int kP> struct Totals {
  Sums d[kD / 8];       // E first
  Sums values[kP / 8];  // C second
  float sums[2] = {};   // E 1, this lane's part
};

/// Weights as a left operand.
template <class Core>
__device__ typename Core::Left as_left(const Sums (&weights)[2], float (&sums)[2]) {
  typename Core::Number n[2][4];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      n[half][i] = Core::rounded(weights[i / 2].x[half][i % 2]);
      sums[half] += value(n[half][i]);
    }
  }
  return Core::left(n);
}

/// Adds what the first `count` rows of the other side give to own rows. The sums of E are those of
/// its rounded entries: then E w - rs(E) x is a sum of E_ij (w_j - x_i), small where these are.
template <bool kGradient, bool kValues, class Core, int kD, int kP>
__device__ void walk(const Place& at, const Side<Core, kD, kP>& own,
                     const Side<Core, kD, kP>& other, int count, Totals<kD, kP>& totals) {
  typename Core::Left first[kD / kChunk], second[kP / kChunk];
  own.first.own_rows(at, first);
  if constexpr (kGradient) own.second.own_rows(at, second);
  const float term[2] = {own.term[at.row_of(0)], own.term[at.row_of(1)]};
#pragma unroll 1
  for (int from = 0; from < count; from += kChunk) {
    Sums c[2], e[2];  // this lane's part of C and E
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      c[n] = other.first.scores(at, first, from + 8 * n);
      if constexpr (kGradient) e[n] = other.second.scores(at, second, from + 8 * n);
      const float* const column = other.term + from + 8 * n + 2 * at.t;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& weight = c[n].x[i / 2][i % 2];
        weight = math::exp(weight + term[i / 2] + column[i % 2]);
        if constexpr (kGradient) e[n].x[i / 2][i % 2] *= weight;
      }
    }
    if constexpr (kGradient) {
      other.first.add_weighted(at, as_left<Core>(e, totals.sums), from, totals.d);
    }
    if constexpr (kValues) {
      float ignored[2] = {};
      other.second.add_weighted(at, as_left<Core>(c, ignored), from, totals.values);
    }
  }
}

/// The largest product of each own row with the other side's, and the first row that gives it.
struct Largest {
  float value[2];
  std::int32_t position[2];

  template <class Core, int kD> __device__ Largest(const Place& at, const Tile<Core, kD>& own_rows,
                                                   const Tile<Core, kD>& other, int count)
      : value{-std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()},
        position{0, 0} {
    typename Core::Left own[kD / kChunk];
    own_rows.own_rows(at, own);
#pragma unroll 2
    for (int from = 0; from < count; from += 8) {
      const Sums products = other.scores(at, own, from);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int j = from + 2 * at.t + i % 2;
        if (j < count) consider(i / 2, products.x[i / 2][i % 2], j);
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {  // over the four lanes of a row
#pragma unroll
      for (int lanes = 1; lanes < 4; lanes *= 2) {
        const float theirs = __shfl_xor_sync(kAllLanes, value[half], lanes);
        consider(half, theirs, __shfl_xor_sync(kAllLanes, position[half], lanes));
      }
    }
  }
  /// To the call's arrays [G, N], from row `first` of these on.
  __device__ void store(const Place& at, const Arrays& in, std::int64_t first, int count) const {
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
template <class Core, int kD, int kP>
__device__ void subtract_own(const Place& at, const Tile<Core, kD>& own, Totals<kD, kP>& totals) {
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
template <int kOuts> __device__ void store(const Place& at, const Sums (&total)[kOuts],
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
__device__ void finish(const Place& at, const Tile<Core, kD>& own, const Sizes& s,
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
__device__ void stabilise(const Place& at, const Arrays& in, std::int64_t first, int count,
                          int landmarks, Side<Core, kD, kP>& rows, const Tile<Core, kD>& other) {
  const Largest found(at, rows.first, other, landmarks);
  found.store(at, in, first, count);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (at.t == 0) rows.term[at.row_of(half)] -= found.value[half];
  }
  __syncwarp();
}

/// Blocks that a multiprocessor holds at least; 0: as the compiler finds best. Left alone, it spills
/// registers of wide rows' gradients for a second one, which the values of wide rows would just miss,
/// and of tf32's narrow rows for a fourth.
template <Precision kPrecision, int kD, int kP, Form kForm> inline constexpr int kResident =
    kPrecision == Precision::bf16&& kD > 32 && !has_gradient(kForm) ? 2
    : kD + kP > 64                                                  ? 1
    : kPrecision == Precision::tf32&& kForm == Form::times          ? 3
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
  const Place at;
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

/// A block's rows as in form_kernel.
template <Precision kPrecision, int kD> __global__ void __launch_bounds__(kThreads)
    maxima_kernel(Sizes s, Arrays in) {
  using Memory = Tile<TensorCore<kPrecision>, kD>[2];
  auto& [x, w] = *reinterpret_cast<Memory*>(cuda::dynamic_shared());
  const Place at;
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

template <Precision kPrecision> void form_at(Form form, const Sizes& s, const Arrays& in) {
  dispatch(form, s, [&]<int kD, int kP, Form kForm>() {
    start("kernel products on tensor cores", form_kernel<kPrecision, kD, kP, kForm>, s, in,
          sizeof(Shared<TensorCore<kPrecision>, kD, kP>));
  });
}

template <Precision kPrecision> void maxima_at(const Sizes& s, const Arrays& in) {
  const auto run = [&]<int kD>() {
    start("row maxima on tensor cores", maxima_kernel<kPrecision, kD>, s, in,
          2 * sizeof(Tile<TensorCore<kPrecision>, kD>));
  };
  if (s.width <= 32) {
    run.template operator()<32>();
  } else {
    run.template operator()<64>();
  }
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
  const std::int64_t products = sides * of_side + s.factor + maxima;  // of a row and a landmark
  cuda::computes(s.heads * s.rows * s.landmarks * products, true);
  at_precision([&]<Precision kPrecision>() { form_at<kPrecision>(form, s, in); });
}

void tensor_core_maxima(const Sizes& s, const Arrays& in) {
  cuda::computes(s.heads * s.rows * s.landmarks * s.width, true);
  at_precision([&]<Precision kPrecision>() { maxima_at<kPrecision>(s, in); });
}

}  // namespace skytape::attention::kernel_cuda
