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
//              and dW2 in registers. A block walks chunk_tokens; the sums of all blocks are added in
//              order afterwards.
#include <cstdint>

#include "tensor/launch/columns.hpp"
#include "tensor/launch/cuda.hpp"
#include "tensor/mlp/gelu.hpp"
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
  alignas(16) float norm_weight[kE], norm_bias[kE], out_bias[kE], in_bias[kF];

  __device__ void load(const MlpPlan& plan, const Arrays& a) {
    load_weight<kF, kE>(a.in_weight, plan.f, plan.e, in);
    load_weight<kE, kF>(a.out_weight, plan.e, plan.f, out);
    load_vector(a.norm_weight, plan.e, norm_weight);
    load_vector(a.norm_bias, plan.e, norm_bias);
    load_vector(a.out_bias, plan.e, out_bias);
    load_vector(a.in_bias, plan.f, in_bias);
  }
};

__device__ __forceinline__ Gelu gelu_of(float z) {
  return gelu(z, cuda::ptx::exp2, cuda::ptx::reciprocal);
}

/// Over the four lanes of a row.
__device__ float row_sum(float x) {
  x += __shfl_xor_sync(kAllLanes, x, 1);
  return x + __shfl_xor_sync(kAllLanes, x, 2);
}

/// norm(x) of the warp's rows.
struct Norm {
  float mean[2], inv_std[2];
  Sums h[kE / 8];
  __device__ Norm(const MlpPlan& plan, const Weights& w, const Rows<const float>& x,
                  const Place& at) {
    const float share = 1.0f / static_cast<float>(plan.e);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      Quad quads[kSteps];
      float sum = 0, squares = 0;
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        quads[step] = x.load(half, step);
#pragma unroll
        for (int i = 0; i < 4; ++i) sum += quads[step].x[i];
      }
      mean[half] = share * row_sum(sum);
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float from_mean = x.has(half, step) ? quads[step].x[i] - mean[half] : 0.0f;
          quads[step].x[i] = from_mean;
          squares += from_mean * from_mean;
        }
      }
      inv_std[half] = 1.0f / math::sqrt(share * row_sum(squares) + plan.epsilon);
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        const Quad &weight = quad_of(w.norm_weight, step, at),
                   &bias = quad_of(w.norm_bias, step, at);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          entry(h + 2 * step, half, i) = quads[step].x[i] * inv_std[half] * weight.x[i] + bias.x[i];
        }
      }
    }
  }
};

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
    Core::Left h[kSteps];
    {
      const Norm norm(plan, w, x, at);
#pragma unroll
      for (int step = 0; step < kSteps; ++step) h[step] = Packed(norm.h + 2 * step).left();
    }
    const Keep keep_hidden(plan.hidden, first, at);
    Sums out[kE / 8];
#pragma unroll 1
    for (int f = 0; f < kF; f += kStep) {
      Sums u[2];
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        add_columns(h[step], w.in + f * kStride + kStep * step, kStride, u);
      }
      const Quad bias = quad_of(w.in_bias, f / kStep, at);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          float& z = entry(u, half, i);  // u from here on
          z = gelu_of(z + bias.x[i]).value * keep_hidden.factor(half, f / kStep, i);
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
    for (int half = 0; half < 2; ++half) {
      const int row = channel_of(at.row(half) % kSlab);
#pragma unroll
      for (int slab = 0; slab < kF / kSlab; ++slab) {
#pragma unroll
        for (int c = 0; c < kSlab / 8; c += 2) {
          const int column = 8 * c + 4 * at.t;
          const int f = kSlab * slab + (first ? row : column), e = first ? column : row;
          if (f >= plan.f || e >= plan.e) continue;
          float* const quad =
              all + (first ? to.in_weight + f * plan.e + e : to.out_weight + e * plan.f + f);
          *reinterpret_cast<Quad*>(quad) = quad_of(x[slab] + c, half);
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
  float mean[2], inv_std[2];  // of the rows

  __device__ Work(const MlpPlan& p, const Arrays& in, const float* dy_all, Shared& shared,
                  std::int64_t first_token)
      : plan(p),
        s(shared),
        first(first_token),
        x(in.x, p.rows, p.e, first_token, at),
        dy(dy_all, p.rows, p.e, first_token, at) {}

  /// h and do to shared memory; db2.
  __device__ void prepare() {
    const Norm norm(plan, s.w, x, at);
    const Keep keep(plan.output, first, at);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      Packed(norm.h + 2 * step).store(s.h, at, kStep * step);
      Sums dout[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const Quad quad = dy.load(half, step);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          entry(dout, half, i) = quad.x[i] * keep.factor(half, step, i);
        }
      }
      Packed(dout).store(s.dout, at, kStep * step);
      add_sums(at, dout, s.sums.out_bias[at.warp] + kStep * step);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      mean[half] = norm.mean[half];
      inv_std[half] = norm.inv_std[half];
    }
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
      const Quad bias = quad_of(s.w.in_bias, f / kStep, at);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const Gelu gelu = gelu_of(entry(u, half, i) + bias.x[i]);
          const float factor = keep.factor(half, f / kStep, i);
          entry(u, half, i) = gelu.value * factor;
          entry(dz, half, i) *= gelu.derivative * factor;
        }
      }
      Packed(u).store(s.u, at, f - begin);
      const Packed rounded(dz);
      rounded.store(s.dz, at, f - begin);
      add_sums(at, dz, s.sums.in_bias[at.warp] + f);
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
    float sum_g[2] = {}, sum_gn[2] = {};
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const Quad& weight = quad_of(s.w.norm_weight, step, at);
      Sums dh_n[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const Quad quad = x.load(half, step);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float d = entry(dh + 2 * step, half, i);
          const float d_n = d * (quad.x[i] - mean[half]) * inv_std[half];
          entry(dh_n, half, i) = d_n;
          sum_g[half] += d * weight.x[i];
          sum_gn[half] += d_n * weight.x[i];
        }
      }
      add_sums(at, dh + 2 * step, s.sums.norm_bias[at.warp] + kStep * step);
      add_sums(at, dh_n, s.sums.norm_weight[at.warp] + kStep * step);
    }
    const float share = 1.0f / static_cast<float>(plan.e);
    const Rows<float> to(dx_all, plan.rows, plan.e, first, at);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float mean_g = share * row_sum(sum_g[half]), mean_gn = share * row_sum(sum_gn[half]);
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        const Quad& weight = quad_of(s.w.norm_weight, step, at);
        const Quad quad = x.load(half, step);
        Quad d = dy.load(half, step);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float n = (quad.x[i] - mean[half]) * inv_std[half];
          const float g = entry(dh + 2 * step, half, i) * weight.x[i];
          d.x[i] += inv_std[half] * (g - mean_g - n * mean_gn);
        }
        to.store(half, step, d);
      }
    }
  }
};

__global__ void __launch_bounds__(kThreads, 1)
    backward_kernel(MlpPlan plan, Arrays in, const float* dy, float* dx, float* partial,
                    std::int64_t chunk_size, std::int64_t chunks) {
  auto& s = *reinterpret_cast<Shared*>(cuda::dynamic_shared());
  const MlpGradientPlaces to(plan.e, plan.f);
  s.w.load(plan, in);
  for (std::int64_t chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
    for (int i = threadIdx.x; i < static_cast<int>(sizeof s.sums / sizeof(float)); i += kThreads) {
      reinterpret_cast<float*>(&s.sums)[i] = 0;
    }
    WeightSums weights;
    __syncthreads();
    const std::int64_t end = math::min((chunk + 1) * chunk_size, plan.rows);
#pragma unroll 1
    for (std::int64_t first = chunk * chunk_size; first < end; first += kTokens) {
      Work work(plan, in, dy, s, first);
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
  const std::int64_t chunk = chunk_tokens(plan.rows, 128);  // one block on a multiprocessor
  const std::int64_t chunks = (plan.rows + chunk - 1) / chunk, size = dparams.numel();
  const Tensor partial = Tensor::empty({chunks, size}, DType::f32, Device::cuda);
  constexpr int kBytes = sizeof(Shared);
  static_assert(kBytes == 121088);  // as train/scripts/gpu_static.sh states
  cuda::allow_shared("mlp", backward_kernel, kBytes);
  cuda::computes(5 * plan.rows * plan.e * plan.f, true);
  cuda::launch("mlp backward on tensor cores", backward_kernel, cuda::grid_for(chunks, 1), kThreads,
               kBytes, plan, arrays(x, w), dy.data<float>(), dx.data<float>(),
               partial.data<float>(), chunk, chunks);
  columns<1, float>(1, chunks, size, PartialEntry<float>{partial.data<float>(), chunks, size},
                    dparams.data<float>());
}

}  // namespace skytape::tensor
