// Sinkhorn normalisation on the GPU: a block takes a matrix through all steps, a warp a row or a
// column at a time. Columns are read as rows of a transposed copy.
#include <algorithm>

#include "attention/sinkhorn/sinkhorn.hpp"
#include "attention/sinkhorn/sinkhorn_lines.hpp"
#include "tensor/launch/cuda.hpp"
#include "tensor/launch/launch.hpp"

namespace skytape::attention {
namespace {

constexpr int kThreads = 1024;

/// f(i, warp) for the lines i of the block's matrix, G counted on.
template <class F> __device__ void lines(std::int64_t size, const F& f) {
  const int warps = blockDim.x / cuda::kWarp, lane = threadIdx.x % cuda::kWarp;
  for (std::int64_t i = threadIdx.x / cuda::kWarp; i < size; i += warps) {
    f(blockIdx.x * size + i, cuda::Warp{lane});
  }
  __syncthreads();
}

/// f(e, e of the transpose) for the entries of the block's matrix.
template <class F> __device__ void entries(std::int64_t size, const F& f) {
  const std::int64_t first = blockIdx.x * size * size;
  for (std::int64_t e = threadIdx.x; e < size * size; e += blockDim.x) {
    f(first + e, first + e % size * size + e / size);
  }
  __syncthreads();
}

template <class T> struct Forward {
  const T* scores;                    // S: [G, Q, Q]
  T* transposed;                      // [G, Q, Q], to be filled
  T *rows, *columns;                  // a, c: [K, G, Q]
  T* matrix;                          // R: [G, Q, Q]
  std::int64_t size, of_step, steps;  // Q, G Q, K
};

template <class T> __global__ void __launch_bounds__(kThreads) forward_kernel(Forward<T> in) {
  const std::int64_t own = blockIdx.x * in.size;
  entries(in.size, [&](std::int64_t e, std::int64_t t) { in.transposed[t] = in.scores[e]; });
  // c = 0 at the start, where c of the first step will be.
  for (std::int64_t j = threadIdx.x; j < in.size; j += blockDim.x) in.columns[own + j] = T(0);
  __syncthreads();
  const T* before = in.columns;
  for (std::int64_t step = 0; step < in.steps; ++step) {
    T *const row = in.rows + step * in.of_step, *const column = in.columns + step * in.of_step;
    lines(in.size, LogSums<T>{in.scores, before, row, in.size});
    lines(in.size, LogSums<T>{in.transposed, row, column, in.size});
    before = column;
  }
  const std::int64_t last = (in.steps - 1) * in.of_step;
  const Matrix<T> matrix{in.scores, in.rows + last, in.columns + last, in.matrix, in.size};
  entries(in.size, [&](std::int64_t e, std::int64_t) { matrix(e); });
}

template <class T> struct Backward {
  const T *scores, *matrix, *dmatrix;  // S, R, dR: [G, Q, Q]
  const T *rows, *columns;             // a, c: [K, G, Q]
  T *transposed, *dtransposed;         // of S and of what falls on it: [G, Q, Q], to be filled
  T *drow, *dcolumn, *none;            // da, dc, zeros: [G, Q], to be filled
  T* dscores;                          // dS: [G, Q, Q]
  std::int64_t size, of_step, steps;   // Q, G Q, K
};

template <class T> __global__ void __launch_bounds__(kThreads) backward_kernel(Backward<T> in) {
  const std::int64_t own = blockIdx.x * in.size;
  const auto clear = [&](T* x) {
    for (std::int64_t i = threadIdx.x; i < in.size; i += blockDim.x) x[own + i] = T(0);
    __syncthreads();
  };
  // dtransposed holds R dR for its sums, then what falls on rows of the transpose.
  entries(in.size, [&](std::int64_t e, std::int64_t t) {
    in.transposed[t] = in.scores[e];
    in.dscores[e] = in.dtransposed[t] = in.matrix[e] * in.dmatrix[e];
  });
  const auto sums = [&](const T* x, T* to) {
    lines(in.size, [&](std::int64_t i, const cuda::Warp& warp) {
      const T sum = warp.sum(in.size, [&](std::int64_t j) { return x[i * in.size + j]; });
      if (warp.leader()) to[i] = -sum;
    });
  };
  sums(in.dscores, in.drow);
  sums(in.dtransposed, in.dcolumn);
  entries(in.size, [&](std::int64_t e, std::int64_t) { in.dtransposed[e] = T(0); });
  clear(in.none);
  for (std::int64_t step = in.steps; step-- > 0;) {
    const T* const row = in.rows + step * in.of_step;
    const T* const column = in.columns + step * in.of_step;
    lines(in.size,
          LogSumsBackward<T>{in.scores, row, column, in.dcolumn, in.dscores, in.drow, in.size});
    clear(in.dcolumn);
    const T* const before = step == 0 ? in.none : column - in.of_step;
    lines(in.size, LogSumsBackward<T>{in.transposed, before, row, in.drow, in.dtransposed,
                                      in.dcolumn, in.size});
    clear(in.drow);
  }
  entries(in.size, [&](std::int64_t e, std::int64_t t) { in.dscores[e] += in.dtransposed[t]; });
}

template <class In> void launch(const char* name, void (*kernel)(In), const In& in) {
  const std::int64_t lanes = in.size * cuda::kWarp;
  cuda::launch({name, static_cast<unsigned>(in.of_step / in.size),
                static_cast<unsigned>(std::min<std::int64_t>(lanes, kThreads))},
               kernel, in);
}

}  // namespace

void sinkhorn_on(Cuda, const Tensor& scores, SinkhornForward& result) {
  if (scores.numel() == 0) return;
  const Tensor transposed = empty_like(scores);
  dispatch_float(scores.dtype(), [&]<class T>() {
    launch("sinkhorn", forward_kernel<T>,
           Forward<T>{scores.data<T>(), transposed.data<T>(), result.rows.data<T>(),
                      result.columns.data<T>(), result.matrix.data<T>(), scores.cols(),
                      scores.rows(), result.rows.size(0)});
  });
}

void sinkhorn_backward_on(Cuda, const Tensor& scores, const SinkhornForward& saved,
                          const Tensor& dmatrix, Tensor& ds) {
  if (scores.numel() == 0) return;
  const std::int64_t of_step = scores.rows();
  const Tensor transposed = empty_like(scores), dtransposed = empty_like(scores);
  const Tensor lines_of = empty_like(scores, {3, of_step});
  dispatch_float(scores.dtype(), [&]<class T>() {
    T* const drow = lines_of.data<T>();
    launch("sinkhorn backward", backward_kernel<T>,
           Backward<T>{scores.data<T>(), saved.matrix.data<T>(), dmatrix.data<T>(),
                       saved.rows.data<T>(), saved.columns.data<T>(), transposed.data<T>(),
                       dtransposed.data<T>(), drow, drow + of_step, drow + 2 * of_step,
                       ds.data<T>(), scores.cols(), of_step, saved.rows.size(0)});
  });
}

}  // namespace skytape::attention
