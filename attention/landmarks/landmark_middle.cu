// The middle at precision bf16: a block owns a matrix from W to Z, and back (landmark_middle.hpp).
//
// Inverse:   C = k(W, W), of W rounded to bf16;  r, M^ = R (C + gamma I) R;  c, V_0 = c M^^T
//            Z (plane_steps.hpp)
// Thin:      T = R (Z (R P)), and dP = R dS from dF = R dT, dS = Z^T dF
// Backward, the equations of scaled_inverse.cpp and iterative_inverse.hpp:
//            S = R P   dS as above   dZ = dF S^T
//            dM^, dV_0 of the steps;  dM^ += c dV_0^T;  dM^[:, argmax] -= c^2 sum(dV_0^T M^)
//            E' = dM^ M^ (entrywise)
//            r^3 dr / 2 = r^2 / 2 (row_sum(dS S) + row_sum(dT T) + row_sum(E') + column_sum(E'))
//            dM = R dM^ R - (r^3 dr / 2) 1^T;  E = dM C, C from M^
//            dW = E W + E^T W - (row_sum(E) + column_sum(E)) W
//            (exponential: without the last term)
#include <algorithm>
#include <cstdint>

#include "attention/inverse/plane_steps.hpp"
#include "attention/inverse/square_sizes.hpp"
#include "attention/landmarks/landmark_middle.hpp"
#include "tensor/core/bf16.hpp"
#include "tensor/launch/cuda.hpp"
#include "tensor/launch/math.hpp"

namespace skytape::attention {
namespace {

using planes::Layout;
using planes::Result;
using planes::sync;

constexpr Op kNone = Op::none, kTransposed = Op::transpose;

/// The arrays of a launch: G = B H matrices.
struct Middle {
  const float *w, *p;               // [G, L, D], [G, L, J]
  float *t, *r, *c;                 // [G, L, J], [G, L], [G]
  std::int32_t* argmax;             // [G]
  planes::Number* images;           // [G, 2 + 4 steps, kImage]
  int size, width, columns, steps;  // L, D, J
  float gamma;
  bool gaussian, detach_start;

  // Backward.
  const float* dt;  // [G, L, J]
  float *dw, *dp;   // as w and p
  float* aside;     // [G, 2, kSize, kSize]
};

/// Numbers of a block, apart from its matrices.
template <class L> struct Vectors {
  float rows[L::kWarps / 2][L::kSize], columns[2][L::kSize];  // shares of sums, by warps
  float r[L::kSize], term[L::kSize];
  float of_warp[L::kWarps];
  float c;
};

/// A block's memory and its place in the launch's arrays.
template <class L, int kWidth> struct Block {
  using Square = planes::Square<L>;
  using Tall = planes::Matrix<L::kSize, kWidth>;  // [kSize, D or J]
  using Share = planes::Tall<L, kWidth>;
  union Slot {
    Square square;
    Tall tall;
  };
  using Work = planes::Work<L, Slot>;

  const Middle& s;
  Work work;
  std::int64_t g = blockIdx.x;

  __device__ explicit Block(const Middle& middle)
      : s(middle),
        work{s.images + blockIdx.x * (2 + 4 * std::int64_t{s.steps}) * planes::kImage<L>, s.steps} {
  }

  __device__ static Vectors<L>& vectors() {
    return *reinterpret_cast<Vectors<L>*>(cuda::dynamic_shared() + 3 * sizeof(Slot));
  }
  __device__ float* aside() const { return s.aside + g * 2 * Work::kEntries; }
  __device__ static Square& square(int i) { return Work::template shared<Square>(i); }
  __device__ static Tall& tall(int i) { return Work::template shared<Tall>(i); }

  __device__ std::int64_t own(int columns) const { return g * s.size * columns; }
  /// r, as forward left it.
  __device__ void load_r() const {
    for (int i = threadIdx.x; i < L::kSize; i += L::kThreads) {
      vectors().r[i] = i < s.size ? s.r[g * s.size + i] : 0.0f;
    }
  }
  /// W, rounded to bf16.
  __device__ void load_w(Tall& to) const {
    planes::load<L>(s.w + own(s.width), s.size, s.width, to,
                    [](int, float x) { return float(Bf16(x)); });
  }
  /// R times rows of an array [G, L, J].
  __device__ void load_scaled(const float* from, Tall& to) const {
    planes::load<L>(from + own(s.columns), s.size, s.columns, to,
                    [](int row, float x) { return vectors().r[row] * x; });
  }

  // Sums of a result's rows and columns: shares first, then, behind a barrier, the sums themselves.
  template <class S> __device__ static void share_row_sums(Result<S>& x, float* sums);
  __device__ static void share_row_sums(Result<L>& x) {
    share_row_sums<L>(x, vectors().rows[planes::warp() / 2]);
  }
  __device__ static void share_column_sums(Result<L>& x);
  __device__ static float row_sum(int i) {
    float sum = 0;
    for (int w = 0; w < L::kWarps / 2; ++w) sum += vectors().rows[w][i];
    return sum;
  }
  __device__ static float column_sum(int i) {
    return vectors().columns[0][i] + vectors().columns[1][i];
  }

  __device__ void scaled_kernel(Result<L>& m) const;
  __device__ void start(Result<L>& m) const;
  __device__ void thin_gradients() const;
  __device__ void start_backward(Result<L>& dm, const Square& m, Square& free) const;
  __device__ void kernel_backward(Result<L>& dm, const Square& m) const;
};

template <class L, int kWidth> template <class S>
__device__ void Block<L, kWidth>::share_row_sums(Result<S>& x, float* sums) {
#pragma unroll
  for (int r = 0; r < S::kRowTiles; ++r) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float sum = 0;
#pragma unroll
      for (int c = 0; c < S::kColumnTiles; ++c) {
        sum += x.tiles[r][c].x[half][0] + x.tiles[r][c].x[half][1];
      }
      sum = cuda::warp_reduce_up<1, 4>(sum);
      const int lane = threadIdx.x % cuda::kWarp;
      if (lane % 4 == 0) sums[S::row() + 16 * r + 8 * half + lane / 4] = sum;
    }
  }
}
template <class L, int kWidth> __device__ void Block<L, kWidth>::share_column_sums(Result<L>& x) {
#pragma unroll
  for (int c = 0; c < L::kColumnTiles; ++c) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      float sum = 0;
#pragma unroll
      for (int r = 0; r < L::kRowTiles; ++r) {
        sum += x.tiles[r][c].x[0][e] + x.tiles[r][c].x[1][e];
      }
      sum = cuda::warp_reduce_up<4, cuda::kWarp>(sum);
      const int lane = threadIdx.x % cuda::kWarp;
      if (lane < 4) vectors().columns[planes::warp() % 2][L::column() + 8 * c + 2 * lane + e] = sum;
    }
  }
}

/// M^, and r to memory.
template <class L, int kWidth> __device__ void Block<L, kWidth>::scaled_kernel(Result<L>& m) const {
  Vectors<L>& v = vectors();
  load_w(tall(1));
  sync();
  m.template add<kNone, kTransposed>(tall(1), tall(1));
  if (s.gaussian) {  // |w_i|^2 stands on the diagonal: k(w, w) is 1, and no exponent is above 0
    m.each([&](int row, int column, float& x) {
      if (row == column) v.term[row] = x;
    });
    __syncthreads();
  }
  m.each([&](int row, int column, float& x) {
    const float norms = s.gaussian ? 0.5f * (v.term[row] + v.term[column]) : 0.0f;
    const bool real = row < s.size && column < s.size;
    x = real ? math::exp(x - norms) + (row == column ? s.gamma : 0.0f) : 0.0f;
  });
  share_row_sums(m);
  __syncthreads();
  for (int i = threadIdx.x; i < L::kSize; i += L::kThreads) {
    v.r[i] = i < s.size ? 1 / math::sqrt(row_sum(i)) : 0.0f;
    if (i < s.size) s.r[g * s.size + i] = v.r[i];
  }
  __syncthreads();
  m.each([&](int row, int column, float& x) { x *= v.r[row] * v.r[column]; });
}

/// V_0 to the third matrix, M^ to the first; c and the column of the largest sum to memory.
template <class L, int kWidth> __device__ void Block<L, kWidth>::start(Result<L>& m) const {
  Vectors<L>& v = vectors();
  share_column_sums(m);
  m.store(square(0));
  __syncthreads();
  if (planes::warp() == 0) {
    float largest = column_sum(threadIdx.x);
    int column = threadIdx.x;
    const auto see = [&](float sum, int at) {
      if (sum > largest || (sum == largest && at < column)) largest = sum, column = at;
    };
    for (int i = threadIdx.x + cuda::kWarp; i < L::kSize; i += cuda::kWarp) see(column_sum(i), i);
#pragma unroll
    for (int offset = 1; offset < cuda::kWarp; offset *= 2) {
      const float sum = __shfl_xor_sync(cuda::kAllLanes, largest, offset);
      see(sum, __shfl_xor_sync(cuda::kAllLanes, column, offset));
    }
    if (threadIdx.x == 0) {
      v.c = s.c[g] = 1 / largest;
      s.argmax[g] = column;
    }
  }
  __syncthreads();
  m.affine(v.c);
  m.store_transposed(square(2));
}

template <class L, int kWidth> __global__ void __launch_bounds__(L::kThreads, 1)
    forward_kernel(Middle s) {
  using B = Block<L, kWidth>;
  const B block(s);
  {
    Result<L> m;
    block.scaled_kernel(m);
    block.start(m);
  }
  {
    Result<L> z = block.work.forward();
    __syncthreads();
    z.store(B::square(2));
  }
  sync();
  planes::keep<L>(B::square(2), block.work.v(s.steps));
}

/// T = R (Z (R P)) or, transposed, dP = R (Z^T (R dT)).
template <class L, int kWidth, Op kOp> __global__ void __launch_bounds__(L::kThreads, 1)
    thin_kernel(Middle s) {
  using B = Block<L, kWidth>;
  const B block(s);
  planes::begin_load<L>(block.work.v(s.steps), B::square(1));  // Z
  block.load_r();
  __syncthreads();
  block.load_scaled(kOp == kNone ? s.p : s.dt, B::tall(0));
  sync();
  if (!B::Share::has_part()) return;
  Result<typename B::Share> x;
  x.template add<kOp, kNone>(B::square(1), B::tall(0));
  x.each([&](int row, int, float& entry) { entry *= B::vectors().r[row]; });
  x.store((kOp == kNone ? s.t : s.dp) + block.own(s.columns), s.size, s.columns);
}

/// row_sum(dS S) + row_sum(dT T) to the vectors' terms; dZ to the first matrix. The second one is
/// free then.
template <class L, int kWidth> __device__ void Block<L, kWidth>::thin_gradients() const {
  Vectors<L>& v = vectors();
  planes::begin_load<L>(work.v(s.steps), square(1));  // Z
  load_scaled(s.dt, tall(2));
  load_scaled(s.p, tall(0));
  sync();
  if (Share::has_part()) {
    Result<Share> ds;
    ds.template add<kTransposed, kNone>(square(1), tall(2));
    ds.each([&](int row, int, float& x) { x *= v.r[row]; });  // dP, as thin_kernel has it
    ds.each([&](int row, int column, float& x) {              // dS S = dP P
      const bool real = row < s.size && column < s.columns;
      const std::int64_t at = own(s.columns) + row * s.columns + column;
      x = real ? x * s.p[at] + s.dt[at] * s.t[at] : 0.0f;
    });
    share_row_sums<Share>(ds, v.term);
  }
  Result<L> dz;
  dz.template add<kNone, kTransposed>(tall(2), tall(0));
  __syncthreads();
  dz.store(square(0));
}

/// Computes M^'s gradient through V_0 = c M^^T. dV_0 is kept aside; `free` is overwritten.
template <class L, int kWidth>
__device__ void Block<L, kWidth>::start_backward(Result<L>& dm, const Square& m,
                                                 Square& free) const {
  Vectors<L>& v = vectors();
  {
    Result<L> dv;
    dv.take_back(aside());
    dv.store(free);
  }
  __syncthreads();
  const float c = s.c[g];
  float share = 0;
  dm.each([&](int row, int column, float& x) {
    const float dv = free.at(column, row);
    share += dv * m.at(row, column);
    x += c * dv;
  });
  if (s.detach_start) return;
  share = cuda::warp_reduce_up<1, cuda::kWarp>(share);
  if (threadIdx.x % cuda::kWarp == 0) v.of_warp[planes::warp()] = share;
  __syncthreads();
  float dc = 0;
  for (int w = 0; w < L::kWarps; ++w) dc += v.of_warp[w];
  const int largest = s.argmax[g];
  dm.each([&](int row, int column, float& x) {
    if (column == largest && row < s.size) x -= c * c * dc;
  });
}

/// From dM^ in `e` E itself. M^ is read last.
template <class L, int kWidth>
__device__ void Block<L, kWidth>::kernel_backward(Result<L>& e, const Square& m) const {
  Vectors<L>& v = vectors();
  {
    Result<L> weighed = e;
    weighed.each([&](int row, int column, float& x) { x *= m.at(row, column); });
    share_row_sums(weighed);
    share_column_sums(weighed);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < L::kSize; i += L::kThreads) {
    v.term[i] = 0.5f * v.r[i] * v.r[i] * (v.term[i] + row_sum(i) + column_sum(i));
  }
  __syncthreads();
  e.each([&](int row, int column, float& x) {
    const float scale = v.r[row] * v.r[column];
    const float c = m.at(row, column) / scale - (row == column ? s.gamma : 0.0f);
    x = scale > 0 ? (scale * x - v.term[row]) * c : 0.0f;
  });
}

template <class L, int kWidth> __global__ void __launch_bounds__(L::kThreads, 1)
    backward_kernel(Middle s) {
  using B = Block<L, kWidth>;
  const B block(s);
  Vectors<L>& v = B::vectors();
  block.load_r();
  for (int i = threadIdx.x; i < L::kSize; i += L::kThreads) v.term[i] = 0;
  __syncthreads();
  block.thin_gradients();
  planes::begin_load<L>(block.work.p(s.steps - 1), B::square(1));
  const int of_m = block.work.backward(block.aside());
  const auto& m = B::square(of_m);
  const int next = (of_m + 1) % 3, last = (of_m + 2) % 3;
  __syncthreads();
  {
    Result<L> e;
    e.take_back(block.aside() + B::Work::kEntries);  // dM^
    block.start_backward(e, m, B::square(next));
    block.kernel_backward(e, m);
    if (s.gaussian) {
      B::share_row_sums(e);
      B::share_column_sums(e);
    }
    e.store(B::square(next));
  }
  block.load_w(B::tall(last));
  sync();
  if (!B::Share::has_part()) return;
  Result<typename B::Share> dw;
  dw.template add<kNone, kNone>(B::square(next), B::tall(last));
  dw.template add<kTransposed, kNone>(B::square(next), B::tall(last));
  if (s.gaussian) {
    dw.each([&](int row, int column, float& x) {
      x -= (B::row_sum(row) + B::column_sum(row)) * B::tall(last).at(row, column);
    });
  }
  dw.store(s.dw + block.own(s.width), s.size, s.width);
}

constexpr std::int64_t kLargestWidth = 64;

template <class L, int kWidth>
constexpr std::size_t kSharedBytes = 3 * sizeof(typename Block<L, kWidth>::Slot) +
                                     sizeof(Vectors<L>);

/// Calls f.operator()<Layout, kWidth>() for the smallest compiled sizes that hold the matrices.
template <class F> void dispatch(std::int64_t size, std::int64_t width, const F& f) {
  square::dispatch_size(size, [&]<int kSize>() {
    if (width <= 32) {
      f.template operator()<Layout<kSize>, 32>();
    } else {
      f.template operator()<Layout<kSize>, kLargestWidth>();
    }
  });
}

template <class L, int kWidth>
void launch(const char* name, void (*kernel)(Middle), const Middle& s, std::int64_t count) {
  constexpr std::size_t kBytes = kSharedBytes<L, kWidth>;
  cuda::launch({name, static_cast<unsigned>(count), L::kThreads, kBytes}, kernel, s);
}

Middle middle_of(const MiddleSaved& saved) {
  Middle m{};
  m.w = saved.w.data<float>();
  m.r = saved.r.data<float>();
  m.c = saved.coefficient.data<float>();
  m.argmax = saved.argmax.data<std::int32_t>();
  m.images = reinterpret_cast<planes::Number*>(saved.planes.data<float>());
  m.size = static_cast<int>(saved.w.size(2));
  m.width = static_cast<int>(saved.w.size(3));
  m.columns = static_cast<int>(saved.columns);
  m.steps = static_cast<int>(saved.config.inverse.steps);
  m.gamma = static_cast<float>(saved.config.gamma);
  m.gaussian = saved.config.kernel == Kernel::gaussian;
  m.detach_start = saved.config.inverse.detach_start;
  return m;
}
/// With P and T.
Middle whole_middle_of(const MiddleSaved& saved) {
  Middle m = middle_of(saved);
  m.p = saved.p.data<float>();
  m.t = saved.t.data<float>();
  return m;
}

template <Op kOp> void thin_product(const Middle& s, std::int64_t count) {
  dispatch(s.size, std::max(s.width, s.columns), [&]<class L, int kWidth>() {
    launch<L, kWidth>("thin product of landmark middle bf16x3", thin_kernel<L, kWidth, kOp>, s,
                      count);
  });
}

}  // namespace

bool middle_fits(std::int64_t size, std::int64_t width) {
  if (size > square::kLargest || width > kLargestWidth) return false;
  bool fits = false;
  dispatch(size, width,
           [&]<class L, int kWidth>() { fits = cuda::has_shared(kSharedBytes<L, kWidth>); });
  return fits;
}

void fused_inverse(MiddleSaved& saved) {
  const Middle s = middle_of(saved);
  dispatch(s.size, std::max(s.width, s.columns), [&]<class L, int kWidth>() {
    launch<L, kWidth>("landmark middle bf16x3", forward_kernel<L, kWidth>, s, saved.r.size(0));
  });
}

void fused_middle(MiddleSaved& saved) {
  thin_product<kNone>(whole_middle_of(saved), saved.r.size(0));
}

void fused_dp(const MiddleSaved& saved, const Tensor& dt, Tensor& dp) {
  Middle s = middle_of(saved);
  s.dt = dt.data<float>();
  s.dp = dp.data<float>();
  thin_product<kTransposed>(s, saved.r.size(0));
}

void fused_dw(const MiddleSaved& saved, const Tensor& dt, Tensor& dw) {
  Middle s = whole_middle_of(saved);
  const std::int64_t rows = saved.planes.size(2);
  const Tensor aside = Tensor::empty({saved.r.size(0), 2, rows, rows}, DType::f32, Device::cuda);
  s.dt = dt.data<float>();
  s.dw = dw.data<float>();
  s.aside = aside.data<float>();
  dispatch(s.size, std::max(s.width, s.columns), [&]<class L, int kWidth>() {
    launch<L, kWidth>("landmark middle backward bf16x3", backward_kernel<L, kWidth>, s,
                      saved.r.size(0));
  });
}

}  // namespace skytape::attention
