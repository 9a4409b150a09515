// norm_pool on CUDA. As w_bn is m_bn times a factor c_b of the sequence,
//
//   pooled_b = c_b (S_b weight + M_b bias)    S_b = Σ_n m_bn h_bn    M_b = Σ_n m_bn
//
// so forward reads x once and writes no row, and the parameters' gradients need no pass over rows:
// dweight = Σ_b c_b dpooled_b S_b, dbias = Σ_b c_b M_b dpooled_b. Backward writes dx from x.
#include "tensor/core/tensor.hpp"
#include "tensor/norm/norm_pool.hpp"

#include <algorithm>
#include <cstdint>

#include "tensor/norm/layer_norm.hpp"
#include "tensor/norm/norm_rows.hpp"

namespace skytape::tensor {
namespace {

using cuda::kWarp;
using Kind = TokenWeights::Kind;

constexpr int kWarps = cuda::kBlockThreads / kWarp;
constexpr std::int64_t kChunk =
    256;  // tokens of a block: fixed, so that no result depends on a grid

/// The sizes and weights that both directions use.
template <class T> struct Sizes {
  std::int64_t batch, n;
  int e;
  TokenWeights::Kind kind;
  T factor;  // of nominal

  Sizes(const Tensor& x, const TokenWeights& rule)
      : batch(x.size(0)),
        n(x.size(1)),
        e(static_cast<int>(x.size(2))),
        kind(rule.kind),
        factor(static_cast<T>(1 / rule.divisor)) {}

  /// Tokens with a weight, from the first on.
  [[nodiscard]] constexpr std::int64_t used() const { return kind == Kind::first ? 1 : n; }
};

template <class T> struct Forward {
  Sizes<T> size;
  const T* x;       // [B, N, E]
  const T* weight;  // [E]
  const T* bias;    // [E]
  const T* mask;    // [B, N]
  T* mean;          // [B, N]
  T* inv_std;       // [B, N]
  T* parts;         // [B, chunks, E + 1]: S and M of a chunk of tokens
  T* sums;          // [B, E + 2]: S, M, c
  T* pooled;        // [B, E]
  std::int64_t chunks;

  /// Entry (b, c) of the sums, c at most E, and of the result.
  __device__ void finish(std::int64_t b, std::int64_t c) const {
    T sum = 0, masked = 0;
    for (std::int64_t k = 0; k < chunks; ++k) {
      const T* const part = parts + (b * chunks + k) * (size.e + 1);
      sum += part[c];
      masked += part[size.e];
    }
    const T factor = size.kind == Kind::nominal ? size.factor
                     : size.kind == Kind::first ? T(1)
                                                : T(1) / math::max(T(1), masked);
    T* const to = sums + b * (size.e + 2);
    to[c] = sum;
    if (c < size.e) {
      pooled[b * size.e + c] = factor * (weight[c] * sum + bias[c] * masked);
    } else {
      to[c + 1] = factor;
    }
  }
  __device__ void operator()(std::int64_t i) const { finish(i / (size.e + 1), i % (size.e + 1)); }
};

template <class R> __global__ void __launch_bounds__(cuda::kBlockThreads)
    forward_kernel(cuda::Late<Forward<typename R::T>> late) {
  const Forward<typename R::T>& in = late.wait();
  using T = typename R::T;
  struct Shared {
    norm_rows::BlockSums<R, kWarps> block_sums;
    T masked[kWarps];
  };
  auto& shared = cuda::shared<Shared>();
  constexpr int kRows = cuda::kBlockThreads / R::kLanes;  // of the block at a time
  const int own = static_cast<int>(threadIdx.x) / R::kLanes;
  for (std::int64_t task = blockIdx.x; task < in.size.batch * in.chunks; task += gridDim.x) {
    const std::int64_t b = task / in.chunks, first = task % in.chunks * kChunk;
    const std::int64_t end = math::min(first + kChunk, in.size.used());
    R sums{};
    T masked = 0;
#pragma unroll 2
    for (std::int64_t begin = first; begin < end; begin += kRows) {
      const std::int64_t token = begin + own, row = b * in.size.n + token;
      const bool real = token < end;
      const R x(real ? in.x + row * in.size.e : nullptr, in.size.e);
      const T m = real ? in.mask[row] : T(0);
      const auto by = norm_rows::moments(x, in.size.e, static_cast<T>(kLayerNormEpsilon));
      R::each([&](int i, int u, int) {
        sums.own[i].x[u] += m * ((x.own[i].x[u] - by.mean) * by.inv_std);
      });
      masked += m;
      if (real && threadIdx.x % R::kLanes == 0) {
        in.mean[row] = by.mean;
        in.inv_std[row] = by.inv_std;
      }
    }
    masked = cuda::warp_reduce_up<R::kLanes, kWarp>(masked);
    if (threadIdx.x % kWarp == 0) shared.masked[threadIdx.x / kWarp] = masked;
    T* const part = in.parts + task * (in.size.e + 1);
    shared.block_sums.add_up(sums, in.size.e, part);
    if (threadIdx.x == 0) {
      T total = shared.masked[0];
      for (int w = 1; w < kWarps; ++w) total += shared.masked[w];
      part[in.size.e] = total;
    }
    __syncthreads();
    if (in.chunks > 1) continue;
    for (int c = threadIdx.x; c <= in.size.e; c += cuda::kBlockThreads) in.finish(b, c);
    __syncthreads();
  }
}

template <class T> struct Backward {
  Sizes<T> size;
  const T* x;        // [B, N, E]
  const T* weight;   // [E]
  const T* mask;     // [B, N]
  const T* mean;     // [B, N]
  const T* inv_std;  // [B, N]
  const T* sums;     // [B, E + 2]: S, M, c
  const T* dpooled;  // [B, E]
  T* dx;             // [B, N, E]
  T* dparams;        // [2, E]: dweight, dbias

  __device__ T factor(std::int64_t b) const { return sums[b * (size.e + 2) + size.e + 1]; }
  /// Entry c of dweight and dbias.
  __device__ void parameter(int c) const {
    T dweight = 0, dbias = 0;
#pragma unroll 4
    for (std::int64_t b = 0; b < size.batch; ++b) {
      const T* const of_b = sums + b * (size.e + 2);
      const T d = factor(b) * dpooled[b * size.e + c];
      dweight += d * of_b[c];
      dbias += d * of_b[size.e];
    }
    dparams[c] = dweight;
    dparams[size.e + c] = dbias;
  }
};

/// The first task is the parameters', every other one some rows of dx.
template <class R> __global__ void __launch_bounds__(cuda::kBlockThreads)
    backward_kernel(cuda::Late<Backward<typename R::T>> late) {
  const Backward<typename R::T>& in = late.wait();
  using T = typename R::T;
  constexpr int kRows = cuda::kBlockThreads / R::kLanes;  // of the block at a time
  const R weight(in.weight, in.size.e);
  const std::int64_t rows = in.size.batch * in.size.n, tasks = 1 + ceil_div(rows, kRows);
  for (std::int64_t task = blockIdx.x; task < tasks; task += gridDim.x) {
    if (task == 0) {
      for (int c = threadIdx.x; c < in.size.e; c += cuda::kBlockThreads) in.parameter(c);
      continue;
    }
    const std::int64_t row = (task - 1) * kRows + threadIdx.x / R::kLanes;
    const bool real = row < rows;
    const std::int64_t b = static_cast<std::uint32_t>(row) / static_cast<std::uint32_t>(in.size.n);
    T w = real && row - b * in.size.n < in.size.used() ? in.mask[row] : T(0);
    const bool weighs = w != T(0);  // of others dx is zero, whatever x is
    if (weighs) w *= in.factor(b);
    const R x(weighs ? in.x + row * in.size.e : nullptr, in.size.e);
    R g(weighs ? in.dpooled + b * in.size.e : nullptr, in.size.e);
    norm_rows::Moments<T> by{};
    if (weighs) by = {in.mean[row], in.inv_std[row]};
    R::each([&](int i, int u, int) { g.own[i].x[u] *= w * weight.own[i].x[u]; });
    norm_rows::backward(x, by, in.size.e, g);
    if (real) g.store(in.dx + row * in.size.e, in.size.e);
  }
}

}  // namespace

void norm_pool_on(Cuda, const Tensor& x, const Tensor& weight, const Tensor& bias,
                  const Tensor& mask, const TokenWeights& rule, NormPool& out) {
  dispatch_float(x.dtype(), [&]<class T>() {
    const Sizes<T> size(x, rule);
    const std::int64_t chunks = ceil_div(size.used(), kChunk), width = size.e + 1;
    const Tensor parts = Tensor::empty(Shape({size.batch, chunks, width}), x.dtype(), Device::cuda);
    const Forward<T> in{size,
                        x.data<T>(),
                        weight.data<T>(),
                        bias.data<T>(),
                        mask.data<T>(),
                        out.mean.data<T>(),
                        out.inv_std.data<T>(),
                        parts.data<T>(),
                        out.sums.data<T>(),
                        out.pooled.data<T>(),
                        chunks};
    norm_rows::dispatch_width<T>(size.e, [&]<class R>() {
      cuda::launch({"norm and pool", cuda::grid_for(size.batch * chunks, 1), cuda::kBlockThreads},
                   forward_kernel<R>, in);
    });
    if (chunks > 1) cuda::map(size.batch * width, in);
  });
}

void norm_pool_backward_on(Cuda, const Tensor& x, const Tensor& weight, const Tensor& mask,
                           const TokenWeights& rule, const NormPool& saved, const Tensor& dpooled,
                           Tensor& dx, Tensor& dparams) {
  dispatch_float(x.dtype(), [&]<class T>() {
    const Backward<T> in{Sizes<T>(x, rule),    x.data<T>(),          weight.data<T>(),
                         mask.data<T>(),       saved.mean.data<T>(), saved.inv_std.data<T>(),
                         saved.sums.data<T>(), dpooled.data<T>(),    dx.data<T>(),
                         dparams.data<T>()};
    norm_rows::dispatch_width<T>(x.size(2), [&]<class R>() {
      constexpr int kRows = cuda::kBlockThreads / R::kLanes;
      cuda::launch(
          {"norm and pool backward", cuda::grid_for(x.rows() + kRows, kRows), cuda::kBlockThreads},
          backward_kernel<R>, in);
    });
  });
}

}  // namespace skytape::tensor
