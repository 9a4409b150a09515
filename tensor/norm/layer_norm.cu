// Layer norm's backward on CUDA with one pass over x and dy. A block owns a chunk of rows: a warp
// computes dx of one row at a time and adds to sums in its registers what the row is to dweight and
// dbias. The sums of the block's warps, then those of all chunks, are added in order.
#include <algorithm>
#include <cstdint>

#include "tensor/launch/columns.hpp"

namespace skytape::tensor {
namespace {

using cuda::kWarp;

constexpr std::int64_t kChunk = 256;  // rows of a block: fixed, so that no result depends on a grid
constexpr std::int64_t kWidest = 256;  // E: a lane has kOwn entries of a row and of both sums
template <class T> constexpr int kWarps = sizeof(T) == 4 ? 16 : 8;  // of a block

template <class T> struct Arrays {
  const T* x;        // [rows, E]
  const T* weight;   // [E]
  const T* mean;     // [rows]
  const T* inv_std;  // [rows]
  const T* dy;       // [rows, E]
  T* dx;             // [rows, E]
  T* sums;           // [2, chunks, E], of dweight and dbias
  std::int64_t rows, chunks, e;
};

template <class T> __device__ T warp_sum(T x) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    x += __shfl_xor_sync(0xffffffffu, x, offset);
  }
  return x;
}

/// A lane's entries lane, lane + 32, … of one row; zeros beyond its end.
template <class T, int kOwn> struct Row {
  T x[kOwn] = {}, dy[kOwn] = {}, mean = 0, inv_std = 0;
  __device__ Row(const Arrays<T>& in, std::int64_t row, int lane) {
    if (row >= in.rows) return;
    mean = in.mean[row];
    inv_std = in.inv_std[row];
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int j = lane + kWarp * i;
      if (j >= in.e) break;
      x[i] = in.x[row * in.e + j];
      dy[i] = in.dy[row * in.e + j];
    }
  }
};

/// With h = (x - mean) inv_std and g = dy weight: dx = inv_std (g - mean(g) - h mean(g h)), and a
/// row adds dy h to dweight and dy to dbias.
template <class T, int kOwn> __global__ void __launch_bounds__(kWarps<T>* kWarp)
    backward_kernel(Arrays<T> in) {
  auto& meet = cuda::shared<T[kWarps<T>][kWarp * kOwn]>();
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const T share = T(1) / static_cast<T>(in.e);
  T weight[kOwn] = {};
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    if (lane + kWarp * i < in.e) weight[i] = in.weight[lane + kWarp * i];
  }
  for (std::int64_t chunk = blockIdx.x; chunk < in.chunks; chunk += gridDim.x) {
    const std::int64_t end = math::min((chunk + 1) * kChunk, in.rows);
    T sums[2][kOwn] = {};
    Row<T, kOwn> next(in, chunk * kChunk + warp, lane);  // on its way while a row is computed
    for (std::int64_t row = chunk * kChunk + warp; row < end; row += kWarps<T>) {
      const Row<T, kOwn> now = next;
      next = Row<T, kOwn>(in, row + kWarps<T>, lane);
      T h[kOwn], g[kOwn], sum_g = 0, sum_gh = 0;
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        h[i] = (now.x[i] - now.mean) * now.inv_std;
        g[i] = now.dy[i] * weight[i];
        sum_g += g[i];
        sum_gh += g[i] * h[i];
        sums[0][i] += now.dy[i] * h[i];
        sums[1][i] += now.dy[i];
      }
      const T mean_g = share * warp_sum(sum_g), mean_gh = share * warp_sum(sum_gh);
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        const int j = lane + kWarp * i;
        if (j < in.e) in.dx[row * in.e + j] = now.inv_std * (g[i] - mean_g - h[i] * mean_gh);
      }
    }
#pragma unroll
    for (int k = 0; k < 2; ++k) {
#pragma unroll
      for (int i = 0; i < kOwn; ++i) meet[warp][lane + kWarp * i] = sums[k][i];
      __syncthreads();
      for (int j = threadIdx.x; j < in.e; j += kWarps<T> * kWarp) {
        T total = meet[0][j];
        for (int w = 1; w < kWarps<T>; ++w) total += meet[w][j];
        in.sums[(k * in.chunks + chunk) * in.e + j] = total;
      }
      __syncthreads();  // what comes next reuses `meet`
    }
  }
}

template <class T, int kOwn> void run(const Arrays<T>& in) {
  if (in.e > kWarp * kOwn) {
    if constexpr (kWarp * kOwn < kWidest) return run<T, 2 * kOwn>(in);
  }
  cuda::launch("layer norm backward", backward_kernel<T, kOwn>, cuda::grid_for(in.chunks, 1),
               kWarps<T> * kWarp, 0, in);
}

}  // namespace

// Declared where it is called, in kernels/layer_norm.cpp.
bool layer_norm_backward_at_once(const Tensor& x, const Tensor& weight, const Tensor& mean,
                                 const Tensor& inv_std, const Tensor& dy, Tensor& dx,
                                 Tensor& dparams) {
  const std::int64_t e = x.cols();
  if (e > kWidest) return false;
  const std::int64_t chunks = std::max<std::int64_t>((x.rows() + kChunk - 1) / kChunk, 1);
  dispatch_float(x.dtype(), [&]<class T>() {
    Tensor partial;  // [2, chunks, E]
    if (chunks > 1) partial = Tensor::empty({2, chunks, e}, x.dtype(), Device::cuda);
    T* const sums = (chunks > 1 ? partial : dparams).template data<T>();
    run<T, 2>({x.data<T>(), weight.data<T>(), mean.data<T>(), inv_std.data<T>(), dy.data<T>(),
               dx.data<T>(), sums, x.rows(), chunks, e});
    if (chunks > 1) {
      columns<1, T>(2, chunks, e, PartialEntry<T>{sums, chunks, e}, dparams.data<T>());
    }
  });
  return true;
}

}  // namespace skytape::tensor
