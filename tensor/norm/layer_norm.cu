// Layer norm on CUDA for rows up to 1,024 wide, forward in one pass over x, backward in one over x
// and dy. Backward, a block owns a chunk of rows: its lanes compute dx and add to sums in their
// registers what their rows are to dweight and dbias. The sums of the block's lanes, then those of
// all chunks, are added in order.
#include <algorithm>
#include <cstdint>

#include "tensor/core/tensor.hpp"
#include "tensor/launch/columns.hpp"
#include "tensor/norm/layer_norm.hpp"
#include "tensor/norm/norm_rows.hpp"

namespace skytape::tensor {
namespace {

using cuda::kWarp;

template <class T, class Y> struct Forward {
  const T* x;       // [rows, E]
  const T* weight;  // [E]
  const T* bias;    // [E]
  Y* y;             // [rows, E]
  T* mean;          // [rows]
  T* inv_std;       // [rows]
  std::int64_t rows;
  int e;
};

template <class R, class Y> __global__ void __launch_bounds__(cuda::kBlockThreads)
    forward_kernel(cuda::Late<Forward<typename R::T, Y>> late) {
  const Forward<typename R::T, Y>& in = late.wait();
  using T = typename R::T;
  constexpr int kRows = cuda::kBlockThreads / R::kLanes;  // of a block at a time
  const R weight(in.weight, in.e), bias(in.bias, in.e);
  for (std::int64_t begin = std::int64_t{blockIdx.x} * kRows; begin < in.rows;
       begin += std::int64_t{gridDim.x} * kRows) {
    const std::int64_t row = begin + threadIdx.x / R::kLanes;
    const bool real = row < in.rows;
    R x(real ? in.x + row * in.e : nullptr, in.e);
    const auto m = norm_rows::moments(x, in.e, static_cast<T>(kLayerNormEpsilon));
    R::each([&](int i, int u, int) {
      x.own[i].x[u] = (x.own[i].x[u] - m.mean) * m.inv_std * weight.own[i].x[u] + bias.own[i].x[u];
    });
    if (!real) continue;
    x.store(in.y + row * in.e, in.e);
    if (threadIdx.x % R::kLanes == 0) {
      in.mean[row] = m.mean;
      in.inv_std[row] = m.inv_std;
    }
  }
}

constexpr int kWarps = 8, kThreads = kWarps * kWarp;

/// Rows of a block in backward: so few that every multiprocessor has work, and 256 blocks at most,
/// whose sums one more kernel adds. A function of the rows alone, so that no result depends on a
/// grid.
std::int64_t chunk_of(std::int64_t rows) {
  std::int64_t chunk = 32;
  while (rows > 256 * chunk) chunk *= 2;
  return chunk;
}

template <class T> struct Backward {
  const T* x;         // [rows, E]
  const T* weight;    // [E]
  const T* mean;      // [rows]
  const T* inv_std;   // [rows]
  const T* dy[2];     // [rows, E]; the second may be null
  const T* residual;  // [rows, E] or null: added to dx
  T* dx;              // [rows, E]
  T* sums;            // [2, chunks, E], of dweight and dbias
  std::int64_t rows, chunks, chunk;
  int e;
};

/// Whether the next row's numbers are on their way while one is computed. Wide rows have no
/// registers for that: a row's own loads are many enough at a time.
template <class R> constexpr bool kAhead = R::kOwn <= 2;

/// A row's numbers.
template <class R> struct Loads {
  R x, dy, also, residual;
  norm_rows::Moments<typename R::T> m{};
  Loads() = default;
  __device__ Loads(const Backward<typename R::T>& in, std::int64_t row, std::int64_t end)
      : x(at(in.x, row, end, in.e), in.e),
        dy(at(in.dy[0], row, end, in.e), in.e),
        also(at(in.dy[1], row, end, in.e), in.e),
        residual(at(in.residual, row, end, in.e), in.e) {
    if (row < end) m = {in.mean[row], in.inv_std[row]};
  }
  __device__ static const typename R::T* at(const typename R::T* rows, std::int64_t row,
                                            std::int64_t end, int e) {
    return rows == nullptr || row >= end ? nullptr : rows + row * e;
  }
};

/// A row adds dy h to dweight and dy to dbias.
template <class R> __global__ void __launch_bounds__(kThreads)
    backward_kernel(cuda::Late<Backward<typename R::T>> late) {
  const Backward<typename R::T>& in = late.wait();
  auto& block_sums = cuda::shared<norm_rows::BlockSums<R, kWarps>>();
  constexpr int kRows = kThreads / R::kLanes;  // of the block at a time
  const R weight(in.weight, in.e);
  for (std::int64_t chunk = blockIdx.x; chunk < in.chunks; chunk += gridDim.x) {
    const std::int64_t end = math::min((chunk + 1) * in.chunk, in.rows);
    const int own = static_cast<int>(threadIdx.x) / R::kLanes;
    R dweight{}, dbias{};
    Loads<R> next;
    if constexpr (kAhead<R>) next = Loads<R>(in, chunk * in.chunk + own, end);
    for (std::int64_t begin = chunk * in.chunk; begin < end; begin += kRows) {
      const std::int64_t row = begin + own;
      Loads<R> now = next;
      if constexpr (kAhead<R>) {
        next = Loads<R>(in, row + kRows, end);
      } else {
        now = Loads<R>(in, row, end);
      }
      R& g = now.dy;
      R::each([&](int i, int u, int) {
        const auto dy = g.own[i].x[u] + now.also.own[i].x[u];
        dweight.own[i].x[u] += dy * ((now.x.own[i].x[u] - now.m.mean) * now.m.inv_std);
        dbias.own[i].x[u] += dy;
        g.own[i].x[u] = dy * weight.own[i].x[u];
      });
      norm_rows::backward(now.x, now.m, in.e, g);
      R::each([&](int i, int u, int) { g.own[i].x[u] += now.residual.own[i].x[u]; });
      if (row < end) g.store(in.dx + row * in.e, in.e);
    }
    block_sums.add_up(dweight, in.e, in.sums + chunk * in.e);
    block_sums.add_up(dbias, in.e, in.sums + (in.chunks + chunk) * in.e);
  }
}

}  // namespace

bool fused_layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias,
                      LayerNormForward& f) {
  if (!is_one_pass(x)) return false;
  if (x.rows() == 0) return true;
  dispatch_float(x.dtype(), [&]<class T>() {
    norm_rows::dispatch_width<T>(x.cols(), [&]<class R>() {
      dispatch_written<T>(f.y.dtype(), [&]<class Y>() {
        cuda::launch({"layer norm", cuda::grid_for(x.rows(), cuda::kBlockThreads / R::kLanes),
                      cuda::kBlockThreads},
                     forward_kernel<R, Y>,
                     Forward<T, Y>{x.data<T>(), weight.data<T>(), bias.data<T>(), f.y.data<Y>(),
                                   f.mean.data<T>(), f.inv_std.data<T>(), x.rows(),
                                   static_cast<int>(x.cols())});
      });
    });
  });
  return true;
}

bool fused_layer_norm_backward(const Tensor& x, const Tensor& weight, const Tensor& mean,
                               const Tensor& inv_std, const Tensor& dy, const Tensor& also,
                               const Tensor& residual, Tensor& dx, Tensor& dparams) {
  const std::int64_t e = x.cols(), rows = x.rows(), chunk = chunk_of(rows);
  if (!is_one_pass(x)) return false;
  const std::int64_t chunks = std::max<std::int64_t>(ceil_div(rows, chunk), 1);
  dispatch_float(x.dtype(), [&]<class T>() {
    Tensor partial;  // [2, chunks, E]
    if (chunks > 1) partial = Tensor::empty({2, chunks, e}, x.dtype(), Device::cuda);
    T* const sums = (chunks > 1 ? partial : dparams).template data<T>();
    norm_rows::dispatch_width<T>(e, [&]<class R>() {
      cuda::launch({"layer norm backward", cuda::grid_for(chunks, 1), kThreads}, backward_kernel<R>,
                   Backward<T>{x.data<T>(),
                               weight.data<T>(),
                               mean.data<T>(),
                               inv_std.data<T>(),
                               {dy.data<T>(), also.data_or_null<T>()},
                               residual.data_or_null<T>(),
                               dx.data<T>(),
                               sums,
                               rows,
                               chunks,
                               chunk,
                               static_cast<int>(e)});
    });
    if (chunks > 1) {
      columns<1, T>(2, chunks, e, PartialEntry<T>{sums, chunks, e}, dparams.data<T>());
    }
  });
  return true;
}

}  // namespace skytape::tensor
