// CUDA half of project_heads. A block owns 128 tokens by 64 columns of all projections side by
// side, [P H D], so that blocks of the same tokens are neighbours and find x in the cache. Results
// leave registers with the bias added, at their place by head. At bf16 most sizes have kernels of
// their own (token_products.cu, wide_heads.cu).
//
//   project_kernel       true f32 and f64: 256 threads with 8 x 4 sums each;
//   tensor_core_kernel   f32 operands rounded to tf32 or bf16, sums in f32: a warp has 16 tokens.
#include <cstdint>

#include "tensor/core/tensor.hpp"
#include "tensor/gemm/tensor_core.hpp"
#include "tensor/launch/columns.hpp"
#include "tensor/launch/cuda.hpp"
#include "tensor/launch/four.hpp"
#include "tensor/launch/math.hpp"
#include "tensor/projection/heads_plan.hpp"

namespace skytape::tensor {
namespace {

/// Entry (i, j) of the gathered matrix, stored as it is summed: columns() asks for each one once.
template <class T, class Y> struct GatheredEntry {
  HeadsPlan plan;
  OfEach<const T> parts;  // [B, H, N, D]
  Y* rows;                // [B N, P H D]
  HD T operator()(int, std::int64_t, std::int64_t i, std::int64_t j) const {
    const T* const from = place(i, j);
    const T value = from == nullptr ? T(0) : *from;
    rows[i * plan.columns() + j] = static_cast<Y>(value);
    return value;
  }
  HD T operator()(int k, std::int64_t o, std::int64_t i) const { return (*this)(k, o, i, 0); }
  [[nodiscard]] bool has_fours() const {  // each of one head
    using Four = cuda::Four<T>;
    return plan.d % 4 == 0 && Four::aligned(parts.first) && Four::aligned(parts.second) &&
           Four::aligned(parts.third) && cuda::Four<Y>::aligned(rows);
  }
  __device__ cuda::Four<T> load(std::int64_t i, std::int64_t j) const {
    const T* const from = place(i, j);
    return from == nullptr ? cuda::Four<T>{} : cuda::Four<T>::at(from);
  }
  __device__ cuda::Four<T> four(std::int64_t i, std::int64_t j, const cuda::Four<T>& values) const {
    cuda::Four<Y> stored;
#pragma unroll
    for (int u = 0; u < 4; ++u) stored.x[u] = static_cast<Y>(values.x[u]);
    stored.store_global(rows + i * plan.columns() + j);
    return values;
  }

 private:
  /// Null: the part is zero.
  __device__ const T* place(std::int64_t i, std::int64_t j) const {
    const std::int64_t p = plan.part_of(j);
    const T* const from = parts.at(p);
    return from == nullptr ? nullptr
                           : from + plan.place_of_row(i) + plan.place_in_part(j - p * plan.out());
  }
};

/// Rows [P H D] with their biases, stored by head: columns j to j + 3, of one head, of kRows rows,
/// all of which are on their way before one is waited for.
struct SplitFours {
  static constexpr int kRows = 8;
  HeadsPlan plan;
  const float* rows;         // [B N, P H D]
  OfEach<const float> bias;  // [H D] or null
  float* y;                  // [P, B, H, N, D]

  __device__ void operator()(std::int64_t i) const {
    const auto across = static_cast<std::uint32_t>(plan.columns() / 4);
    const std::uint32_t down = static_cast<std::uint32_t>(i) / across;
    const std::int64_t column = 4 * (i - down * across), row = kRows * down;
    const int count = static_cast<int>(math::min<std::int64_t>(kRows, plan.rows() - row));
    const float* const from = rows + row * plan.columns() + column;
    cuda::Four<float> fours[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (r < count) fours[r] = cuda::Four<float>::at(from + r * plan.columns());
    }
    const std::int64_t p = plan.part_of(column), own = column - p * plan.out();
    const float* const biases = bias.at(p);
    float* const to = y + p * plan.part_size() + plan.place_in_part(own);
    const auto added = cuda::load_four(biases == nullptr ? nullptr : biases + own, 0, 4);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int u = 0; u < 4; ++u) fours[r].x[u] += added.x[u];
      if (r < count) fours[r].store_global(to + plan.place_of_row(row + r));
    }
  }
};

/// Entry e of all entries of such rows, for heads of any width.
struct SplitEntry {
  SplitFours of;
  __device__ void operator()(std::int64_t e) const {
    const std::int64_t row = e / of.plan.columns(), column = e - row * of.plan.columns();
    const std::int64_t p = of.plan.part_of(column), own = column - p * of.plan.out();
    const float* const biases = of.bias.at(p);
    of.y[p * of.plan.part_size() + of.plan.place_in_part(own) + of.plan.place_of_row(row)] =
        of.rows[e] + (biases == nullptr ? 0.0f : biases[own]);
  }
};

/// A row [H D] of the heads side by side, rounded.
struct MergedRow {
  HeadsPlan plan;
  const float* a;  // [B, H, N, D]
  Bf16* rows;      // [B N, H D]
  template <class Team> __device__ void operator()(std::int64_t row, const Team& team) const {
    const float* const from = a + plan.place_of_row(row);
    Bf16* const to = rows + row * plan.out();
    if (plan.d % 4 != 0) {
      return team.each(plan.out(), [&](std::int64_t column) {
        to[column] = static_cast<Bf16>(from[plan.place_in_part(column)]);
      });
    }
    team.each(plan.out() / 4, [&](std::int64_t four) {  // of one head
      const auto values = cuda::load_four(from + plan.place_in_part(4 * four), 0, 4);
      cuda::Four<Bf16> rounded;
#pragma unroll
      for (int u = 0; u < 4; ++u) rounded.x[u] = static_cast<Bf16>(values.x[u]);
      cuda::store_four(rounded, to, static_cast<int>(4 * four), plan.out());
    });
  }
};

using cuda::Accumulator;
using cuda::kMmaK;
using cuda::TensorCore;
using cuda::WarpRows;

constexpr int kBlockM = 128;  // of a block
constexpr int kBlockN = 64;
constexpr int kThreads = 256;

template <class T> using Arrays = ProjectionArrays<T>;

/// The block's first row of x and its first column of all projections.
struct Corner {
  std::int64_t row, column;
  __device__ Corner(const HeadsPlan& plan, std::int64_t task) {
    const std::int64_t across = ceil_div(plan.columns(), kBlockN);
    row = task / across * kBlockM;
    column = task % across * kBlockN;
  }
};

/// A column of all projections: its biases from here on, and where its results begin.
template <class T> struct Column {
  const T* biases;  // null: none
  T* y;
  __device__ Column(const HeadsPlan& plan, const Arrays<T>& in, std::int64_t column) {
    const std::int64_t p = plan.part_of(column), own = column - p * plan.out();
    biases = in.bias.at(p) == nullptr ? nullptr : in.bias.at(p) + own;
    y = in.y + p * plan.part_size() + plan.place_in_part(own);
  }
  __device__ T bias(int after) const { return biases == nullptr ? T(0) : biases[after]; }
};

/// Finds the weights of the block's columns, [E] each; null beyond the last column. The block waits
/// before it reads them.
template <class T> __device__ void find_weights(const HeadsPlan& plan, const Arrays<T>& in,
                                                Corner at, const T* (&rows)[kBlockN]) {
  const int c = threadIdx.x;
  if (c >= kBlockN) return;
  const std::int64_t column = at.column + c, p = plan.part_of(column);
  rows[c] =
      column < plan.columns() ? in.weight.at(p) + (column - p * plan.out()) * plan.width : nullptr;
}

// ---- true f32 and f64 --------------------------------------------------------------------------

constexpr int kBlockK = 16;                              // of x's width at a time
constexpr int kAcross = 16, kDown = kThreads / kAcross;  // threads along columns and rows
constexpr int kThreadM = kBlockM / kDown, kThreadN = kBlockN / kAcross;

/// Operands of a block, by depth. A thread owns rows that lie together and columns kAcross apart,
/// so that results of one row are stored side by side. The rows' padding keeps them aligned.
template <class T> struct Operands {
  alignas(16) T x[kBlockK][kBlockM + 4];
  alignas(16) T w[kBlockK][kBlockN + 4];
  const T* weights[kBlockN];
};

template <class T> __device__ void load(const HeadsPlan& plan, const Arrays<T>& in, Corner at,
                                        std::int64_t begin, Operands<T>& to) {
  for (int e = threadIdx.x; e < kBlockM * kBlockK; e += kThreads) {
    const int row = e / kBlockK, depth = e % kBlockK;
    const bool inside = at.row + row < plan.rows() && begin + depth < plan.width;
    to.x[depth][row] = inside ? in.x[(at.row + row) * plan.width + begin + depth] : T(0);
  }
  for (int e = threadIdx.x; e < kBlockN * kBlockK; e += kThreads) {
    const int c = e / kBlockK, depth = e % kBlockK;
    const bool inside = to.weights[c] != nullptr && begin + depth < plan.width;
    to.w[depth][c] = inside ? to.weights[c][begin + depth] : T(0);
  }
}

// Two blocks of f32 on a multiprocessor: for three, two registers would have to spill.
template <class T> __global__ void __launch_bounds__(kThreads, sizeof(T) == 4 ? 2 : 1)
    project_kernel(HeadsPlan plan, Arrays<T> in, std::int64_t tasks) {
  auto& tile = cuda::shared<Operands<T>>();
  const int right = threadIdx.x % kAcross, down = threadIdx.x / kAcross * kThreadM;
  for (std::int64_t task = blockIdx.x; task < tasks; task += gridDim.x) {
    const Corner at(plan, task);
    find_weights(plan, in, at, tile.weights);
    T sum[kThreadM][kThreadN] = {};
    for (std::int64_t begin = 0; begin < plan.width; begin += kBlockK) {
      __syncthreads();  // everybody is done with the last operands
      load(plan, in, at, begin, tile);
      __syncthreads();
#pragma unroll
      for (int depth = 0; depth < kBlockK; ++depth) {
        T x[kThreadM], w[kThreadN];
#pragma unroll
        for (int r = 0; r < kThreadM; ++r) x[r] = tile.x[depth][down + r];
#pragma unroll
        for (int c = 0; c < kThreadN; ++c) w[c] = tile.w[depth][right + kAcross * c];
#pragma unroll
        for (int r = 0; r < kThreadM; ++r) {
#pragma unroll
          for (int c = 0; c < kThreadN; ++c) sum[r][c] += x[r] * w[c];
        }
      }
    }
    T* to[kThreadN];
    T bias[kThreadN];
#pragma unroll
    for (int c = 0; c < kThreadN; ++c) {
      const std::int64_t column = at.column + right + kAcross * c;
      const bool inside = column < plan.columns();
      const Column<T> found(plan, in, inside ? column : 0);
      to[c] = inside ? found.y : nullptr;
      bias[c] = inside ? found.bias(0) : T(0);
    }
#pragma unroll
    for (int r = 0; r < kThreadM; ++r) {
      if (at.row + down + r >= plan.rows()) break;
      const std::int64_t place = plan.place_of_row(at.row + down + r);
#pragma unroll
      for (int c = 0; c < kThreadN; ++c) {
        if (to[c] != nullptr) to[c][place] = sum[r][c] + bias[c];
      }
    }
  }
}

// ---- tf32 and bf16 -----------------------------------------------------------------------------

constexpr int kSlab = 64;  // of x's width at a time
constexpr int kSteps = kSlab / kMmaK;
constexpr int kStride = kSlab + 8;  // of a weight's row: eight rows then touch every bank
static_assert(kThreads / cuda::kWarp * 16 == kBlockM);

/// Two numbers side by side, at one address where that is even.
struct alignas(8) Pair {
  float first, second;
};

/// This warp's rows of x from column `begin` on, as fragments A; zeros beyond.
template <class Core> __device__ void load_rows(const HeadsPlan& plan, const float* x,
                                                std::int64_t first, const WarpRows& place,
                                                std::int64_t begin,
                                                typename Core::FragmentA (&own)[kSteps]) {
  const bool even = plan.width % 2 == 0;
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    typename Core::Number n[2][4];
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int half = e / 2, i = e % 2 * 2;
      const std::int64_t row = first + place.row + place.g + 8 * half;
      const std::int64_t c = begin + kMmaK * s + 2 * place.t + 4 * i;
      Pair pair{0, 0};
      if (row < plan.rows() && c < plan.width) {
        const float* const from = x + row * plan.width + c;
        pair = even ? *reinterpret_cast<const Pair*>(from)
                    : Pair{from[0], c + 1 < plan.width ? from[1] : 0.0f};
      }
      n[half][i] = Core::rounded(pair.first);
      n[half][i + 1] = Core::rounded(pair.second);
    }
    own[s] = Core::fragment_a(n);
  }
}

/// Sums of two columns, from an even one on, to their places.
__device__ void store(const HeadsPlan& plan, const Arrays<float>& in, const Accumulator& sums,
                      std::int64_t column, const std::int64_t (&rows)[2],
                      const std::int64_t (&places)[2]) {
  if (column >= plan.columns()) return;
  if (plan.d % 2 == 0) {  // both are there, and neighbours in a head
    const Column<float> two(plan, in, column);
    const Pair bias{two.bias(0), two.bias(1)};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (rows[half] >= plan.rows()) continue;
      *reinterpret_cast<Pair*>(two.y + places[half]) = {sums.x[half][0] + bias.first,
                                                        sums.x[half][1] + bias.second};
    }
    return;
  }
#pragma unroll
  for (int e = 0; e < 2; ++e) {
    if (column + e >= plan.columns()) break;
    const Column<float> one(plan, in, column + e);
    const float bias = one.bias(0);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (rows[half] < plan.rows()) one.y[places[half]] = sums.x[half][e] + bias;
    }
  }
}

/// Weights of the block's columns, [E] cut into slabs.
template <class Number> struct Slab {
  Number w[kBlockN * kStride];
  const float* weights[kBlockN];
};

template <Precision kPrecision> __global__ void __launch_bounds__(kThreads)
    tensor_core_kernel(HeadsPlan plan, Arrays<float> in, std::int64_t tasks) {
  using Core = TensorCore<kPrecision>;
  using Number = typename Core::Number;
  auto& slab = cuda::shared<Slab<Number>>();
  const WarpRows place;
  for (std::int64_t task = blockIdx.x; task < tasks; task += gridDim.x) {
    const Corner at(plan, task);
    find_weights(plan, in, at, slab.weights);
    Accumulator sums[kBlockN / 8];
    for (std::int64_t begin = 0; begin < plan.width; begin += kSlab) {
      typename Core::FragmentA own[kSteps];
      load_rows<Core>(plan, in.x, at.row, place, begin, own);
      __syncthreads();  // everybody is done with the last weights
      for (int e = threadIdx.x; e < kBlockN * kSlab; e += kThreads) {
        const int c = e / kSlab, depth = e % kSlab;
        const bool inside = slab.weights[c] != nullptr && begin + depth < plan.width;
        slab.w[c * kStride + depth] = Core::rounded(inside ? slab.weights[c][begin + depth] : 0.0f);
      }
      __syncthreads();
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
#pragma unroll
        for (int c = 0; c < kBlockN / 8; ++c) {
          const Number* const n = slab.w + (8 * c + place.g) * kStride + kMmaK * s + 2 * place.t;
          Core::mma(sums[c], own[s], Core::fragment_b(n[0], n[1], n[8], n[9]));
        }
      }
    }
    const std::int64_t first = at.row + place.row + place.g;
    const std::int64_t rows[2] = {first, first + 8};
    const std::int64_t places[2] = {plan.place_of_row(first), plan.place_of_row(first + 8)};
#pragma unroll
    for (int c = 0; c < kBlockN / 8; ++c) {
      store(plan, in, sums[c], at.column + 8 * c + 2 * place.t, rows, places);
    }
  }
}

template <class T, class Kernel> void run(Kernel kernel, const HeadsPlan& plan, const Tensor& x,
                                          std::span<const Tensor> weights,
                                          std::span<const Tensor> biases, Tensor& y) {
  const Arrays<T> in = projection_arrays<T>(x, weights, biases, y);
  const std::int64_t rows = plan.batch * plan.n, columns = y.numel() / rows;
  const std::int64_t tasks = ceil_div(rows, kBlockM) * ceil_div(columns, kBlockN);
  cuda::launch({"project heads", cuda::grid_for(tasks, 1), kThreads}, kernel, plan, in, tasks);
}

}  // namespace

void project_heads_on(Cuda, const HeadsPlan& plan, const Tensor& x, std::span<const Tensor> weights,
                      std::span<const Tensor> biases, Tensor& y) {
  if (x.dtype() == DType::f64) {
    return run<double>(project_kernel<double>, plan, x, weights, biases, y);
  }
  switch (precision(Device::cuda)) {
    case Precision::fp32:
      return run<float>(project_kernel<float>, plan, x, weights, biases, y);
    case Precision::tf32:
      return run<float>(tensor_core_kernel<Precision::tf32>, plan, x, weights, biases, y);
    case Precision::bf16:
      return run<float>(tensor_core_kernel<Precision::bf16>, plan, x, weights, biases, y);
  }
}

void split_heads_on(Cuda, const HeadsPlan& plan, const Tensor& rows, std::span<const Tensor> biases,
                    Tensor& y) {
  const SplitFours split{plan, rows.data<float>(), of_each<const float>(biases), y.data<float>()};
  using Four = cuda::Four<float>;
  if (plan.d % 4 == 0 && Four::aligned(split.rows) && Four::aligned(split.y)) {
    cuda::map(ceil_div(rows.size(0), SplitFours::kRows) * (rows.size(1) / 4), split);
  } else {
    cuda::map(rows.numel(), SplitEntry{split});
  }
}

void merge_rows_on(Cuda, const HeadsPlan& plan, const Tensor& a, Tensor& rows) {
  cuda::rows(rows.size(0), rows.size(1), MergedRow{plan, a.data<float>(), rows.data<Bf16>()});
}

void gather_heads_on(Cuda, const HeadsPlan& plan, std::span<const Tensor> parts, GatheredHeads& g) {
  dispatch_float(g.sums.dtype(), [&]<class T>() {
    dispatch_written<T>(g.rows.dtype(), [&]<class Y>() {
      columns<1, T>(1, g.rows.size(0), g.rows.size(1),
                    GatheredEntry<T, Y>{plan, of_each<const T>(parts), g.rows.data<Y>()},
                    g.sums.data<T>());
    });
  });
}

}  // namespace skytape::tensor
