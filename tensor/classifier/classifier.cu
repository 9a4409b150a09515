// The classifier on CUDA. Forward: a block has an example, and four lanes a row of a weight.
// Backward: a block has an example's dx or a hidden channel's gradients. All sums have a fixed
// order.
#include "tensor/classifier/classifier.hpp"

#include <algorithm>
#include <limits>

#include "tensor/classifier/classifier_plan.hpp"
#include "tensor/launch/four.hpp"
#include "tensor/launch/launch.hpp"

namespace skytape::tensor {
namespace {

using cuda::kWarp;

constexpr int kWarps = 8, kThreads = kWarps * kWarp;
constexpr int kGroup = 4;                   // lanes of a row
constexpr int kGroups = kThreads / kGroup;  // rows of a block at a time

constexpr std::int64_t padded(std::int64_t n) { return (n + 3) / 4 * 4; }

template <class T> struct Weights {
  const T* in;        // [F, K]
  const T* in_bias;   // [F]
  const T* out;       // [C, F]
  const T* out_bias;  // [C]
  explicit Weights(const ClassifierWeights& w)
      : in(w.in_weight.data<T>()),
        in_bias(w.in_bias.data<T>()),
        out(w.out_weight.data<T>()),
        out_bias(w.out_bias.data<T>()) {}
};

/// to[i] = from[i], and zeros from n to the next multiple of four, by the whole block.
template <class T> __device__ void stage(const T* from, std::int64_t n, T* to) {
  for (std::int64_t i = threadIdx.x; i < padded(n); i += kThreads) to[i] = i < n ? from[i] : T(0);
}

/// f(r, Σ_i weight[r, i] v[i] + bias[r]) for every row of weight [rows, n], once; v: as staged.
template <class T, class F> __device__ void each_product(const T* weight, const T* bias,
                                                         std::int64_t rows, std::int64_t n,
                                                         const T* v, const F& f) {
  const int first = 4 * static_cast<int>(threadIdx.x % kGroup);
  for (std::int64_t begin = 0; begin < rows; begin += kGroups) {
    const std::int64_t r = begin + threadIdx.x / kGroup;
    const T* const row = r < rows ? weight + r * n : nullptr;
    T sum = 0;
#pragma unroll 4
    for (int i = first; i < n; i += 4 * kGroup) {
      const cuda::Four<T> four = cuda::load_four(row, i, n);
#pragma unroll
      for (int u = 0; u < 4; ++u) sum += four.x[u] * v[i + u];
    }
    sum = cuda::warp_reduce_up<1, kGroup>(sum);
    if (r < rows && first == 0) f(r, sum + bias[r]);
  }
}

template <class T> struct Forward {
  ClassifierPlan plan;
  const T* x;  // [B, K]
  Weights<T> w;
  const std::int32_t* labels;  // [B]
  const T* class_weights;      // [C]; nullptr: all 1
  T* hidden;                   // [B, F]
  T* dlogits;                  // [B, C]
  T* scores;                   // [2, B]: losses; 1 where the label has the largest logit, else 0
};

/// Loss, gradient and verdict from one example's logits, as the softmax kernels have them.
template <class T> __device__ void score(const Forward<T>& in, std::int64_t b, const T* logits,
                                         const cuda::Warp& warp) {
  const std::int64_t c = in.plan.c, label = in.labels[b];
  const bool valid = label >= 0 && label < c;
  const T nan = std::numeric_limits<T>::quiet_NaN();
  const T best = warp.max(c, [=](std::int64_t i) { return logits[i]; });
  const T shift = best - best == T(0) ? best : T(0);  // infinite and NaN logits stay visible
  const T total = warp.sum(c, [=](std::int64_t i) { return math::exp(logits[i] - shift); });
  const T sum = warp.sum(c, [=](std::int64_t i) { return logits[i] - shift; });
  const T at_label = logits[valid ? label : 0];
  // Entries that argmax prefers to the label: larger ones, equal ones before it, and NaN.
  const T preferred = warp.sum(c, [=](std::int64_t i) {
    const bool behind = logits[i] < at_label || (logits[i] == at_label && i >= label);
    return behind ? T(0) : T(1);
  });
  const T weight = in.class_weights != nullptr && valid ? in.class_weights[label] : T(1);
  const T s = static_cast<T>(in.plan.smoothing), share = weight / static_cast<T>(in.plan.b);
  const T scale = valid ? T(1) / total : nan, every = s / static_cast<T>(c);
  T* const to = in.dlogits + b * c;
  warp.each(c, [=](std::int64_t i) {
    const T target = every + (i == label ? T(1) - s : T(0));
    to[i] = share * (math::exp(logits[i] - shift) * scale - target);
  });
  if (!warp.leader()) return;
  const T spread = s == T(0) ? T(0) : every * sum;  // 0 also where a logit is infinite
  const T loss = math::log(total) - ((T(1) - s) * (at_label - shift) + spread);
  in.scores[b] = valid ? weight * loss : nan;
  in.scores[in.plan.b + b] = valid && preferred == T(0) ? T(1) : T(0);
}

template <class T> __global__ void __launch_bounds__(kThreads)
    forward_kernel(cuda::Late<Forward<T>> late) {
  const Forward<T>& in = late.wait();
  T* const features = reinterpret_cast<T*>(cuda::dynamic_shared());  // [K]
  T* const hidden = features + padded(in.plan.k);                    // [F]
  T* const logits = hidden + padded(in.plan.f);                      // [C]
  for (std::int64_t b = blockIdx.x; b < in.plan.b; b += gridDim.x) {
    stage(in.x + b * in.plan.k, in.plan.k, features);
    for (std::int64_t f = in.plan.f + threadIdx.x; f < padded(in.plan.f); f += kThreads) {
      hidden[f] = T(0);
    }
    __syncthreads();
    each_product(in.w.in, in.w.in_bias, in.plan.f, in.plan.k, features, [&](std::int64_t f, T z) {
      hidden[f] = in.hidden[b * in.plan.f + f] = z > T(0) ? z : T(0);
    });
    __syncthreads();
    each_product(in.w.out, in.w.out_bias, in.plan.c, in.plan.f, hidden,
                 [&](std::int64_t c, T z) { logits[c] = z; });
    __syncthreads();
    if (threadIdx.x < kWarp) score(in, b, logits, cuda::Warp{static_cast<int>(threadIdx.x)});
    __syncthreads();  // the next example reuses the arrays
  }
}

/// The mean of the losses, and the share that correct answers have.
template <class T> struct Shares {
  const T* scores;  // [2, B]
  T* to[2];         // [] each
  double divisor[2];
  std::int64_t b;
  __device__ void operator()(std::int64_t row, const cuda::Warp& warp) const {
    const T* const from = scores + row * b;
    const T total = warp.sum(b, [=](std::int64_t i) { return from[i]; });
    if (warp.leader()) *to[row] = total / static_cast<T>(divisor[row]);
  }
};

template <class T> struct Gradients {
  ClassifierPlan plan;
  const T* x;  // [B, K]
  Weights<T> w;
  const T* hidden;   // [B, F]
  const T* dlogits;  // [B, C]
  const T* dloss;    // []
  T* dx;             // [B, K]
  T* dparams;        // at ClassifierGradientPlaces
};

template <class T> using WarpSums = T[kWarps][kWarp];

/// to[j step] = Σ_i weights[i] rows[i, j] for rows [n, width], by the whole block: warps share the
/// i, and what they found is added in order.
template <class T> __device__ void combine(const T* weights, const T* rows, std::int64_t n,
                                           std::int64_t width, WarpSums<T>& warp_sums, T* to,
                                           std::int64_t step) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  for (std::int64_t begin = 0; begin < width; begin += kWarp) {
    const std::int64_t j = begin + lane;
    T sum = 0;
    if (j < width) {
#pragma unroll 4
      for (std::int64_t i = warp; i < n; i += kWarps) sum += weights[i] * rows[i * width + j];
    }
    warp_sums[warp][lane] = sum;
    __syncthreads();
    if (warp == 0 && j < width) {
      T total = warp_sums[0][lane];
      for (int other = 1; other < kWarps; ++other) total += warp_sums[other][lane];
      to[j * step] = total;
    }
    __syncthreads();
  }
}

/// dh[b, f], from dlogits.
template <class T> __device__ T dhidden(const Gradients<T>& in, std::int64_t b, std::int64_t f) {
  if (!(in.hidden[b * in.plan.f + f] > T(0))) return T(0);
  const T* const dz = in.dlogits + b * in.plan.c;
  T sum = 0;
#pragma unroll 4
  for (std::int64_t c = 0; c < in.plan.c; ++c) sum += dz[c] * in.w.out[c * in.plan.f + f];
  return *in.dloss * sum;
}

/// dx of an example: dh W1.
template <class T>
__device__ void example(const Gradients<T>& in, std::int64_t b, T* dh, WarpSums<T>& warp_sums) {
  for (std::int64_t f = threadIdx.x; f < in.plan.f; f += kThreads) dh[f] = dhidden(in, b, f);
  __syncthreads();
  combine(dh, in.w.in, in.plan.f, in.plan.k, warp_sums, in.dx + b * in.plan.k, 1);
}

/// A hidden channel's row of dW1, entry of db1 and column of dW2.
template <class T> __device__ void channel(const Gradients<T>& in, std::int64_t f, T* dh, T* h,
                                           WarpSums<T>& warp_sums) {
  const ClassifierGradientPlaces at(in.plan);
  for (std::int64_t b = threadIdx.x; b < in.plan.b; b += kThreads) {
    dh[b] = dhidden(in, b, f);
    h[b] = *in.dloss * in.hidden[b * in.plan.f + f];
  }
  __syncthreads();
  combine(dh, in.x, in.plan.b, in.plan.k, warp_sums, in.dparams + f * in.plan.k, 1);
  combine(h, in.dlogits, in.plan.b, in.plan.c, warp_sums, in.dparams + at.out_weight + f,
          in.plan.f);
  if (threadIdx.x >= kWarp) return;
  const cuda::Warp warp{static_cast<int>(threadIdx.x)};
  const T total = warp.sum(in.plan.b, [=](std::int64_t b) { return dh[b]; });
  if (warp.leader()) in.dparams[at.in_bias + f] = total;
}

/// Examples, then hidden channels, then db2.
template <class T> __global__ void __launch_bounds__(kThreads)
    backward_kernel(cuda::Late<Gradients<T>> late) {
  const Gradients<T>& in = late.wait();
  auto& warp_sums = cuda::shared<WarpSums<T>>();
  const std::int64_t b = in.plan.b, f = in.plan.f;
  T* const first = reinterpret_cast<T*>(cuda::dynamic_shared());  // [max(B, F)]
  T* const second = first + math::max(b, f);                      // [B]
  for (std::int64_t task = blockIdx.x; task < b + f + 1; task += gridDim.x) {
    if (task < b) {
      example(in, task, first, warp_sums);
    } else if (task < b + f) {
      channel(in, task - b, first, second, warp_sums);
    } else {
      for (std::int64_t i = threadIdx.x; i < b; i += kThreads) first[i] = *in.dloss;
      __syncthreads();
      combine(first, in.dlogits, b, in.plan.c, warp_sums,
              in.dparams + ClassifierGradientPlaces(in.plan).out_bias, 1);
    }
    __syncthreads();  // the next task reuses the arrays
  }
}

}  // namespace

void classify_on(Cuda, const ClassifierPlan& plan, const Tensor& x, const ClassifierWeights& w,
                 const Tensor& labels, const Tensor& class_weights, Classified& out) {
  dispatch_float(x.dtype(), [&]<class T>() {
    const Tensor scores = Tensor::empty({2, plan.b}, x.dtype(), Device::cuda);
    const auto shared = static_cast<std::size_t>(padded(plan.k) + padded(plan.f) + plan.c);
    cuda::launch({"classifier", cuda::grid_for(plan.b, 1), kThreads, sizeof(T) * shared},
                 forward_kernel<T>,
                 Forward<T>{plan, x.data<T>(), Weights<T>(w), labels.data<std::int32_t>(),
                            class_weights.data_or_null<T>(), out.hidden.data<T>(),
                            out.dlogits.data<T>(), scores.data<T>()});
    cuda::warp_rows(2, Shares<T>{scores.data<T>(),
                                 {out.loss.data<T>(), out.correct.data<T>()},
                                 {static_cast<double>(plan.b), plan.examples},
                                 plan.b});
  });
}

void classify_backward_on(Cuda, const ClassifierPlan& plan, const Tensor& x,
                          const ClassifierWeights& w, const Classified& saved, const Tensor& dloss,
                          Tensor& dx, Tensor& dparams) {
  dispatch_float(x.dtype(), [&]<class T>() {
    const auto shared = static_cast<std::size_t>(std::max(plan.b, plan.f) + plan.b);
    cuda::launch(
        {"classifier backward", cuda::grid_for(plan.b + plan.f + 1, 1), kThreads,
         sizeof(T) * shared},
        backward_kernel<T>,
        Gradients<T>{plan, x.data<T>(), Weights<T>(w), saved.hidden.data<T>(),
                     saved.dlogits.data<T>(), dloss.data<T>(), dx.data<T>(), dparams.data<T>()});
  });
}

}  // namespace skytape::tensor
