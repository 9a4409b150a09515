// The MLP as one kernel each way, after FlashAttention's pattern: what lies between x and y, [B, N, F],
// stays on chip. Products are bf16 with f32 sums; norm, GELU, dropout and the residual are f32.
//
// A warp owns 16 tokens, a block of 8 warps 128 of them and, rounded in shared memory, all weights.
// Narrower models are padded with zeros to the compiled widths. The equations and their gradients
// stand in mlp.hpp and mlp.cpp.
//
//   forward    h, z, u of 16 hidden channels at a time go from product to product in registers;
//   backward   computes h, z, u and their gradients again, 64 hidden channels at a time, and leaves
//              h, do, u, dz of 128 tokens in shared memory, from which all warps together add up dW1
//              and dW2 in registers. A block walks kChunkTokens tokens; the sums of all blocks are added
//              in order afterwards.
#include <cstdint>

#include "tensor/launch/columns.hpp"
#include "tensor/launch/cuda.hpp"
#include "tensor/mlp/mlp_plan.hpp"
#include "tensor/tokens/token_tiles.hpp"

namespace skytape::tensor {
namespace {

using namespace token_tiles;

constexpr int kE = kWidth, kF = 128;  // compiled widths
constexpr int kSlab = kE;             // hidden channels whose u and dz lie in shared memory
constexpr int kStrideF = kF + 8;      // as kStride, of rows of F
static_assert(kF % kSlab == 0 && kSlab % kStep == 0 && kF <= philox::kChunk);

struct Arrays {
  const float* x;                        // [B N, E]
  const float *norm_weight, *norm_bias;  // [E]
  const float *in_weight, *in_bias;      // [F, E], [F]
  const float *out_weight, *out_bias;    // [E, F], [E]
};

/// The parameters in shared memory, zeros beyond E and F.
struct Weights {
  alignas(16) Number in[kF * kStride];    // W1
  alignas(16) Number out[kE * kStrideF];  // W2
  float norm_weight[kE], norm_bias[kE], out_bias[kE], in_bias[kF];

  __device__ void load(const MlpPlan& plan, const Arrays& a) {
    for (int i = threadIdx.x; i < kF * kE; i += kThreads) {
      const int f = i / kE, e = i % kE;
      const bool inside = f < plan.f && e < plan.e;
      in[f * kStride + e] = Core::rounded(inside ? a.in_weight[f * plan.e + e] : 0.0f);
    }
    for (int i = threadIdx.x; i < kE * kF; i += kThreads) {
      const int e = i / kF, f = i % kF;
      const bool inside = f < plan.f && e < plan.e;
      out[e * kStrideF + f] = Core::rounded(inside ? a.out_weight[e * plan.f + f] : 0.0f);
    }
    for (int e = threadIdx.x; e < kE; e += kThreads) {
      norm_weight[e] = e < plan.e ? a.norm_weight[e] : 0.0f;
      norm_bias[e] = e < plan.e ? a.norm_bias[e] : 0.0f;
      out_bias[e] = e < plan.e ? a.out_bias[e] : 0.0f;
    }
    for (int f = threadIdx.x; f < kF; f += kThreads) in_bias[f] = f < plan.f ? a.in_bias[f] : 0.0f;
  }
};

/// Over the four lanes of a row.
__device__ float row_sum(float x) {
  x += __shfl_xor_sync(kAllLanes, x, 1);
  return x + __shfl_xor_sync(kAllLanes, x, 2);
}

/// Means and inverse deviations of the warp's rows.
struct Moments {
  float mean[2], inv_std[2];
  __device__ Moments(const MlpPlan& plan, const Rows<const float>& x, const Place& at) {
    const float share = 1.0f / static_cast<float>(plan.e);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float sum = 0, squares = 0;
#pragma unroll
      for (int c = 0; c < kE / 8; ++c) {
        const Pair pair = x.load(half, 8 * c + 2 * at.t);
        sum += pair.x[0] + pair.x[1];
      }
      mean[half] = share * row_sum(sum);
#pragma unroll
      for (int c = 0; c < kE / 8; ++c) {  // x comes from the cache: registers are for sums
        const int column = 8 * c + 2 * at.t;
        const Pair pair = x.load(half, column);
        const float first = pair.x[0] - mean[half], second = pair.x[1] - mean[half];
        if (column < plan.e) squares += first * first + second * second;
      }
      inv_std[half] = 1.0f / math::sqrt(share * row_sum(squares) + plan.epsilon);
    }
  }
};

/// Channels [16 s, 16 s + 16) of h in the layout of product results.
__device__ void normed(const Weights& w, const Moments& m, const Rows<const float>& x,
                       const Place& at, int s, Sums (&h)[2]) {
#pragma unroll
  for (int c = 0; c < 2; ++c) {
    const int column = kStep * s + 8 * c + 2 * at.t;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const Pair pair = x.load(half, column);
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        h[c].x[half][e] = (pair.x[e] - m.mean[half]) * m.inv_std[half] * w.norm_weight[column + e] +
                          w.norm_bias[column + e];
      }
    }
  }
}

// ---- forward -------------------------------------------------------------------------------------

__global__ void __launch_bounds__(kThreads, 2)
    forward_kernel(MlpPlan plan, Arrays in, float* y, std::int64_t blocks) {
  auto& w = cuda::shared<Weights>();
  const Place at;
  w.load(plan, in);
  __syncthreads();
  for (std::int64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
    const std::int64_t first = block * kTokens;
    const Rows<const float> x(in.x, plan.rows, plan.e, first, at);
    const Moments moments(plan, x, at);
    const Keep keep_hidden(plan.hidden, first, at);
    Core::Left h[kE / kStep];
#pragma unroll
    for (int s = 0; s < kE / kStep; ++s) {
      Sums two[2];
      normed(w, moments, x, at, s, two);
      h[s] = Packed(two).left();
    }
    Sums out[kE / 8];
#pragma unroll 1
    for (int f = 0; f < kF; f += kStep) {
      Sums u[2];
#pragma unroll
      for (int s = 0; s < kE / kStep; ++s) {
        add_columns(h[s], w.in + f * kStride + kStep * s, kStride, u);
      }
#pragma unroll
      for (int c = 0; c < 2; ++c) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const float z = u[c].x[half][e] + w.in_bias[f + 8 * c + 2 * at.t + e];
            u[c].x[half][e] = z * math::normal_cdf(z) * keep_hidden.factor(half, f / 8 + c, e);
          }
        }
      }
      const Core::Left left = Packed(u).left();
#pragma unroll
      for (int c = 0; c < kE / 8; c += 2) {
        add_columns(left, w.out + 8 * c * kStrideF + f, kStrideF, out + c);
      }
    }
    const Keep keep(plan.output, first, at);
    const Rows<float> to(y, plan.rows, plan.e, first, at);
    add_to_residual(at, out, w.out_bias, keep, x, to);
  }
}

// ---- backward ------------------------------------------------------------------------------------

/// Sums over the warp's tokens, a line for each warp.
struct ColumnSums {
  float norm_weight[kWarps][kE], norm_bias[kWarps][kE], out_bias[kWarps][kE];
  float in_bias[kWarps][kF];
};

struct Shared {
  Weights w;
  alignas(16) Number h[kTokens * kStride], dout[kTokens * kStride];  // dout: through its dropout
  alignas(16) Number u[kTokens * kStride], dz[kTokens * kStride];    // of a slab
  ColumnSums sums;
};

/// The same of 16 hidden channels; two lanes have each sum.
__device__ void add_hidden_sums(const Place& at, const Sums (&x)[2], float* line) {
  float v[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) v[i] = x[i / 2].x[0][i % 2] + x[i / 2].x[1][i % 2];
  share_sums<4>(v);
  if (at.g % 2 == 0) line[8 * (at.g / 4) + 2 * at.t + at.g / 2 % 2] += v[0];
}
static_assert(kE == 64 && kStep == 16);

/// dW1 and dW2 of the tokens so far. The first four warps own rows of dW1, the others of dW2: 16 of
/// each slab, or of E, by 64 columns.
struct WeightSums {
  Sums x[kF / kSlab][kSlab / 8];

  template <int kWhich> __device__ void add(const Shared& s, const Place& at) {
    const bool first = at.warp < kWarps / 2;
    const Number* const left = (first ? s.dz : s.dout) + kRows * (at.warp % 4);
    const Number* const right = first ? s.h : s.u;
#pragma unroll 2
    for (int token = 0; token < kTokens; token += kStep) {
      const Core::Left a = Core::left_by_columns(left + token * kStride, kStride);
#pragma unroll
      for (int c = 0; c < kSlab / 8; c += 2) {
        add_rows(a, right + token * kStride + 8 * c, kStride, x[kWhich] + c);
      }
    }
  }

  __device__ void store(const MlpPlan& plan, const MlpGradientPlaces& to, const Place& at,
                        float* all) const {
    const bool first = at.warp < kWarps / 2;
#pragma unroll
    for (int slab = 0; slab < kF / kSlab; ++slab) {
#pragma unroll
      for (int c = 0; c < kSlab / 8; ++c) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int half = i / 2, row = kRows * (at.warp % 4) + at.g + 8 * half;
          const int column = 8 * c + 2 * at.t + i % 2;
          const int f = kSlab * slab + (first ? row : column), e = first ? column : row;
          if (f >= plan.f || e >= plan.e) continue;
          all[first ? to.in_weight + f * plan.e + e : to.out_weight + e * plan.f + f] =
              x[slab][c].x[half][i % 2];
        }
      }
    }
  }
};
static_assert(kWarps == 8 && kSlab == 64);

/// Of a block's 128 tokens.
struct Work {
  const MlpPlan& plan;
  Shared& s;
  Place at;
  std::int64_t first;
  Rows<const float> x, dy;
  Moments moments;

  __device__ Work(const MlpPlan& p, const Arrays& in, const float* dy_all, Shared& shared,
                  std::int64_t first_token)
      : plan(p),
        s(shared),
        first(first_token),
        x(in.x, p.rows, p.e, first_token, at),
        dy(dy_all, p.rows, p.e, first_token, at),
        moments(p, x, at) {}

  /// h and do to shared memory; db2.
  __device__ void prepare() const {
    const Keep keep(plan.output, first, at);
    Sums dout[kE / 8];
#pragma unroll
    for (int step = 0; step < kE / kStep; ++step) {
      Sums h[2], own[2];
      normed(s.w, moments, x, at, step, h);
      Packed(h).store(s.h, at, kStep * step);
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const int tile = 2 * step + c;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const Pair pair = dy.load(half, 8 * tile + 2 * at.t);
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            own[c].x[half][e] = pair.x[e] * keep.factor(half, tile, e);
          }
        }
        dout[tile] = own[c];
      }
      Packed(own).store(s.dout, at, kStep * step);
    }
    add_channel_sums(at, dout, s.sums.out_bias[at.warp]);
    __syncwarp();  // the warp's rows are read by itself at first
  }

  /// u and dz of the slab from hidden channel `begin` on to shared memory; db1; dh += dz W1.
  __device__ void hidden_slab(const Keep& keep, int begin, Sums (&dh)[kE / 8]) const {
    const int own = kRows * at.warp * kStride;
#pragma unroll 1
    for (int f = begin; f < begin + kSlab; f += kStep) {
      Sums u[2], dz[2];  // at first z without its bias, and du
#pragma unroll
      for (int e = 0; e < kE; e += kStep) {
        add_columns(Core::left_by_rows(s.h + own + e, kStride), s.w.in + f * kStride + e, kStride,
                    u);
        add_rows(Core::left_by_rows(s.dout + own + e, kStride), s.w.out + e * kStrideF + f,
                 kStrideF, dz);
      }
#pragma unroll
      for (int c = 0; c < 2; ++c) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const float z = u[c].x[half][e] + s.w.in_bias[f + 8 * c + 2 * at.t + e];
            const float cdf = math::normal_cdf(z), factor = keep.factor(half, f / 8 + c, e);
            u[c].x[half][e] = z * cdf * factor;
            dz[c].x[half][e] *= factor * (cdf + z * math::normal_pdf(z));
          }
        }
      }
      Packed(u).store(s.u, at, f - begin);
      const Packed rounded(dz);
      rounded.store(s.dz, at, f - begin);
      add_hidden_sums(at, dz, s.sums.in_bias[at.warp] + f);
      const Core::Left left = rounded.left();
#pragma unroll
      for (int c = 0; c < kE / 8; c += 2) {
        add_rows(left, s.w.in + f * kStride + 8 * c, kStride, dh + c);
      }
    }
  }

  /// dx; what the rows add to the norm's own gradients. With n = (x - mean) inv_std and g = dh weight:
  /// dx = dy + inv_std (g - mean(g) - n mean(g n)).
  __device__ void norm_backward(const Sums (&dh)[kE / 8], float* dx_all) const {
    add_channel_sums(at, dh, s.sums.norm_bias[at.warp]);
    Sums dh_n[kE / 8];
    float sum_g[2] = {}, sum_gn[2] = {};
#pragma unroll
    for (int c = 0; c < kE / 8; ++c) {
      const int column = 8 * c + 2 * at.t;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const Pair pair = x.load(half, column);
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const float weight = s.w.norm_weight[column + e];
          dh_n[c].x[half][e] =
              dh[c].x[half][e] * (pair.x[e] - moments.mean[half]) * moments.inv_std[half];
          sum_g[half] += dh[c].x[half][e] * weight;
          sum_gn[half] += dh_n[c].x[half][e] * weight;
        }
      }
    }
    add_channel_sums(at, dh_n, s.sums.norm_weight[at.warp]);
    const float share = 1.0f / static_cast<float>(plan.e);
    const Rows<float> to(dx_all, plan.rows, plan.e, first, at);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float mean_g = share * row_sum(sum_g[half]), mean_gn = share * row_sum(sum_gn[half]);
#pragma unroll
      for (int c = 0; c < kE / 8; ++c) {
        const int column = 8 * c + 2 * at.t;
        const Pair pair = x.load(half, column);
        Pair d = dy.load(half, column);
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const float n = (pair.x[e] - moments.mean[half]) * moments.inv_std[half];
          const float g = dh[c].x[half][e] * s.w.norm_weight[column + e];
          d.x[e] += moments.inv_std[half] * (g - mean_g - n * mean_gn);
        }
        to.store(half, column, d);
      }
    }
  }
};

__global__ void __launch_bounds__(kThreads, 1)
    backward_kernel(MlpPlan plan, Arrays in, const float* dy, float* dx, float* partial,
                    std::int64_t chunks) {
  auto& s = *reinterpret_cast<Shared*>(cuda::dynamic_shared());
  const MlpGradientPlaces to(plan.e, plan.f);
  s.w.load(plan, in);
  for (std::int64_t chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
    for (int i = threadIdx.x; i < static_cast<int>(sizeof s.sums / sizeof(float)); i += kThreads) {
      reinterpret_cast<float*>(&s.sums)[i] = 0;
    }
    WeightSums weights;
    __syncthreads();
    const std::int64_t end = math::min((chunk + 1) * kChunkTokens, plan.rows);
#pragma unroll 1
    for (std::int64_t first = chunk * kChunkTokens; first < end; first += kTokens) {
      const Work work(plan, in, dy, s, first);
      work.prepare();
      const Keep keep(plan.hidden, first, work.at);
      Sums dh[kE / 8];
      work.hidden_slab(keep, 0, dh);
      __syncthreads();
      weights.add<0>(s, work.at);
      __syncthreads();
      work.hidden_slab(keep, kSlab, dh);
      __syncthreads();
      weights.add<1>(s, work.at);
      work.norm_backward(dh, dx);
      __syncthreads();
    }
    float* const own = partial + chunk * to.size;
    weights.store(plan, to, Place(), own);
    store_sums(s.sums.norm_weight, plan.e, own + to.norm_weight);
    store_sums(s.sums.norm_bias, plan.e, own + to.norm_bias);
    store_sums(s.sums.in_bias, plan.f, own + to.in_bias);
    store_sums(s.sums.out_bias, plan.e, own + to.out_bias);
    __syncthreads();  // the next chunk's sums begin at zero
  }
}
static_assert(kF == 2 * kSlab);

Arrays arrays(const Tensor& x, const MlpWeights& w) {
  return {x.data<float>(),           w.norm_weight.data<float>(), w.norm_bias.data<float>(),
          w.in_weight.data<float>(), w.in_bias.data<float>(),     w.out_weight.data<float>(),
          w.out_bias.data<float>()};
}

}  // namespace

void mlp_on(Cuda, const MlpPlan& plan, const Tensor& x, const MlpWeights& w, Tensor& y) {
  const std::int64_t blocks = (plan.rows + kTokens - 1) / kTokens;
  cuda::computes(2 * plan.rows * plan.e * plan.f, true);
  cuda::launch("mlp on tensor cores", forward_kernel, cuda::grid_for(blocks, 1), kThreads, 0, plan,
               arrays(x, w), y.data<float>(), blocks);
}

void mlp_backward_on(Cuda, const MlpPlan& plan, const Tensor& x, const MlpWeights& w,
                     const Tensor& dy, Tensor& dx, Tensor& dparams) {
  const std::int64_t chunks = (plan.rows + kChunkTokens - 1) / kChunkTokens;
  const std::int64_t size = dparams.numel();
  const Tensor partial = Tensor::empty({chunks, size}, DType::f32, Device::cuda);
  constexpr int kBytes = sizeof(Shared);
  static_assert(kBytes == 121088);  // as train/scripts/gpu_static.sh states
  cuda::allow_shared("mlp", backward_kernel, kBytes);
  cuda::computes(5 * plan.rows * plan.e * plan.f, true);
  cuda::launch("mlp backward on tensor cores", backward_kernel, cuda::grid_for(chunks, 1), kThreads,
               kBytes, plan, arrays(x, w), dy.data<float>(), dx.data<float>(),
               partial.data<float>(), chunks);
  columns<1, float>(1, chunks, size, PartialEntry<float>{partial.data<float>(), chunks, size},
                    dparams.data<float>());
}

}  // namespace skytape::tensor
