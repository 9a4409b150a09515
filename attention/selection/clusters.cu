// Sums of the nearest tokens on the GPU. A block has some tokens of a head: a thread finds the
// centroid nearest to one of them, then a warp adds up those of one centroid after the other, in
// their order.
#include "attention/selection/clusters.hpp"
#include "tensor/core/tensor.hpp"
#include "tensor/launch/launch.hpp"

namespace skytape::attention {
namespace {

constexpr int kTokens = 128;  // of a block, one a thread
constexpr int kWarps = kTokens / cuda::kWarp;

template <class T> struct Nearest {
  const T *x, *scores, *mask;  // [B, H, N, D], [B, H, C, N], [B, N]
  T* sums;                     // [B, parts, H, C, D]
  std::int64_t heads, tokens, centroids, width, parts;
};

template <class T> struct Shared {
  int nearest[kTokens];       // -1: none
  T x[kTokens][cuda::kWarp];  // some columns
};

template <class T> __global__ void __launch_bounds__(kTokens) nearest_sums_kernel(Nearest<T> in) {
  auto& shared = cuda::shared<Shared<T>>();
  const int warp = threadIdx.x / cuda::kWarp, lane = threadIdx.x % cuda::kWarp;
  const std::int64_t head = blockIdx.x / in.parts, part = blockIdx.x % in.parts;
  const std::int64_t example = head / in.heads, first = part * kTokens;
  T* const sums = in.sums + ((example * in.parts + part) * in.heads + head % in.heads) *
                                in.centroids * in.width;

  const std::int64_t own = first + threadIdx.x;
  int nearest = -1;
  if (own < in.tokens && in.mask[example * in.tokens + own] != T(0)) {
    const T* const score = in.scores + head * in.centroids * in.tokens + own;
    T largest = score[0];
    nearest = 0;
#pragma unroll 4
    for (int c = 1; c < in.centroids; ++c) {
      const T candidate = score[c * in.tokens];
      if (candidate > largest) nearest = c;
      if (candidate > largest) largest = candidate;
    }
  }
  shared.nearest[threadIdx.x] = nearest;
  for (std::int64_t column = lane; column - lane < in.width; column += cuda::kWarp) {
    __syncthreads();  // everybody is done with the columns before
#pragma unroll 8
    for (int i = warp; i < kTokens; i += kWarps) {
      const bool there = first + i < in.tokens && column < in.width;
      shared.x[i][lane] = there ? in.x[(head * in.tokens + first + i) * in.width + column] : T(0);
    }
    __syncthreads();
    for (int c = warp; c < in.centroids; c += kWarps) {
      T sum = 0;
      for (int i = 0; i < kTokens; i += cuda::kWarp) {
        unsigned hits = __ballot_sync(cuda::kAllLanes, shared.nearest[i + lane] == c);
        for (; hits != 0; hits &= hits - 1) {
          sum += shared.x[i + __ffs(static_cast<int>(hits)) - 1][lane];
        }
      }
      if (column < in.width) sums[c * in.width + column] = sum;
    }
  }
}

}  // namespace

Tensor nearest_sums_on(Cuda, const Tensor& x, const Tensor& scores, const Tensor& mask) {
  const std::int64_t b = x.size(0), h = x.size(1), n = x.size(2), c = scores.size(2);
  const std::int64_t parts = ceil_div(n, kTokens);
  Tensor sums = empty_like(x, {b * parts, h, c, x.size(3)});
  if (sums.numel() == 0) return sums;
  dispatch_float(x.dtype(), [&]<class T>() {
    cuda::launch({"nearest sums", static_cast<unsigned>(b * h * parts), kTokens},
                 nearest_sums_kernel<T>,
                 Nearest<T>{x.data<T>(), scores.data<T>(), mask.data<T>(), sums.data<T>(), h, n, c,
                            x.size(3), parts});
  });
  return sums;
}

}  // namespace skytape::attention
