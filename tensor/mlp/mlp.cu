// The MLP as one kernel each way, after FlashAttention's pattern: what lies between x and y, [B, N, F],
// stays on chip. Products are bf16 with f32 sums; norm, GELU, dropout and the residual are f32.
//
// A warp, backward two of them, owns 16 tokens, a block 128 and, rounded in shared memory, all weights.
// Narrower models are padded with zeros to the compiled widths. The equations and their gradients
// stand in mlp.hpp and mlp.cpp.
//
//   forward    h, z, u of 16 hidden channels at a time go from product to product in registers;
//   backward   computes h, z, u and their gradients again, 64 hidden channels at a time, and leaves
//              h, do, u, dz of 128 tokens in shared memory, from which all warps together add up dW1
//              and dW2 in registers. A block walks chunk_tokens; the sums of all blocks are added in
//              order afterwards.
#include <cstdint>

#include "tensor/core/tensor.hpp"
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
static_assert(kF % kSlab == 0 && kSlab % kMmaK == 0 && kF <= philox::kChunk);

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

  template <int kBlockThreads> __device__ void load(const MlpPlan& plan, const Arrays& a) {
    load_weight<kF, kE, kBlockThreads>(a.in_weight, plan.f, plan.e, plan.e, in);
    load_weight<kE, kF, kBlockThreads>(a.out_weight, plan.e, plan.f, plan.f, out);
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
__device__ float row_sum(float x) { return cuda::warp_reduce_up<1, 4>(x); }

/// norm(x) of the warp's rows.
struct Norm {
  float mean[2], inv_std[2];
  Accumulator h[kE / 8];
  __device__ Norm(const MlpPlan& plan, const Weights& w, const Rows<const float>& x,
                  const WarpTokens& at) {
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
  const WarpTokens at;
  w.load<kThreads>(plan, in);
  __syncthreads();
  for (std::int64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
    const std::int64_t first = block * kTokens;
    const Rows<const float> x(in.x, plan.rows, plan.e, first, at);
    Core::FragmentA h[kSteps];
    {
      const Norm norm(plan, w, x, at);
#pragma unroll
      for (int step = 0; step < kSteps; ++step) h[step] = Packed(norm.h + 2 * step).fragment_a();
    }
    const Keep keep_hidden(plan.hidden, first, at);
    Accumulator out[kE / 8];
#pragma unroll 1
    for (int f = 0; f < kF; f += kMmaK) {
      Accumulator u[2];
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        add_columns(h[step], w.in + f * kStride + kMmaK * step, kStride, u);
      }
      const Quad bias = quad_of(w.in_bias, f / kMmaK, at);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          float& z = entry(u, half, i);  // u from here on
          z = gelu_of(z + bias.x[i]).value * keep_hidden.factor(half, f / kMmaK, i);
        }
      }
      const Core::FragmentA a = Packed(u).fragment_a();
#pragma unroll
      for (int c = 0; c < kE / 8; c += 2) {
        add_columns(a, w.out + 8 * c * kStrideF + f, kStrideF, out + c);
      }
    }
    const Keep keep(plan.output, first, at);
    const Rows<float> to(y, plan.rows, plan.e, first, at);
    add_to_residual(at, out, w.out_bias, keep, x, to);
  }
}

// ---- backward ------------------------------------------------------------------------------------

/// Two warps share 16 tokens: each has half of the hidden channels of both rows, and afterwards one row
/// of each lane. So 16 warps hide each other's waiting, each with half of the sums.
constexpr int kBackwardThreads = 2 * kThreads;

/// Sums over the warps' tokens, a line for 16 of them, or for each warp.
struct ColumnSums {
  float norm_weight[2 * kWarps][kE], norm_bias[2 * kWarps][kE], out_bias[kWarps][kE];
  float in_bias[kWarps][kF];
};

struct Shared {
  Weights w;
  alignas(16) Number h[kTokens * kStride], dout[kTokens * kStride];  // dout: through its dropout
  alignas(16) Number u[kTokens * kStride], dz[kTokens * kStride];    // of a slab
  ColumnSums sums;
  float mean[kTokens], inv_std[kTokens];
  std::uint32_t kept[2][kThreads];  // hidden channels of a lane's row, for both warps
  float dh[2][kE / 4][kThreads];    // of a lane's row, from the warp that has the other one
};

/// dW1 and dW2 of the tokens so far. Eight warps own dW1, the others dW2: 16 rows of each slab, or of
/// E, by 32 columns.
struct WeightSums {
  static constexpr int kTiles = kSlab / 8 / 2;
  Accumulator x[kF / kSlab][kTiles];

  __device__ static int row(const WarpTokens& at) { return kRows * (at.warp % 4); }
  __device__ static int column(const WarpTokens& at) { return kSlab / 2 * (at.warp / 4); }

  template <int kWhich> __device__ void add(const Shared& s, const WarpTokens& at) {
    const Number* const left = (at.side == 0 ? s.dz : s.dout) + row(at);
    const Number* const right = (at.side == 0 ? s.h : s.u) + column(at);
#pragma unroll 4
    for (int token = 0; token < kTokens; token += kMmaK) {
      const Core::FragmentA a = Core::ldmatrix_a_trans(left + token * kStride, kStride);
#pragma unroll
      for (int c = 0; c < kTiles; c += 2) {
        add_rows(a, right + token * kStride + 8 * c, kStride, x[kWhich] + c);
      }
    }
  }

  __device__ void store(const MlpPlan& plan, const MlpGradientPlaces& to, const WarpTokens& at,
                        float* all) const {
    const bool first = at.side == 0;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int own = channel_of(row(at) + at.g + 8 * half);
#pragma unroll
      for (int slab = 0; slab < kF / kSlab; ++slab) {
#pragma unroll
        for (int c = 0; c < kTiles; c += 2) {
          const int other = column(at) + 8 * c + 4 * at.t;
          const int f = kSlab * slab + (first ? own : other), e = first ? other : own;
          if (f >= plan.f || e >= plan.e) continue;
          float* const quad =
              all + (first ? to.in_weight + f * plan.e + e : to.out_weight + e * plan.f + f);
          quad_of(x[slab] + c, half).store(quad);
        }
      }
    }
  }
};
static_assert(kWarps == 8 && kSlab == 64);

/// Of a block's 128 tokens.
struct Work {
  const MlpPlan& plan;
  const Arrays& in;
  const float* dy;
  Shared& s;
  WarpTokens at;
  std::int64_t first;

  /// h and do to shared memory; db2.
  __device__ void prepare() const {
    if (at.side == 0) {
      const Norm norm(plan, s.w, Rows<const float>(in.x, plan.rows, plan.e, first, at), at);
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        Packed(norm.h + 2 * step).store(s.h, at, kMmaK * step);
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (at.t != 0) continue;
        s.mean[at.token(half)] = norm.mean[half];
        s.inv_std[at.token(half)] = norm.inv_std[half];
      }
    } else {
      const Rows<const float> rows(dy, plan.rows, plan.e, first, at);
      const Keep keep(plan.output, first, at);
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        Accumulator dout[2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const Quad quad = rows.load(half, step);
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            entry(dout, half, i) = quad.x[i] * keep.factor(half, step, i);
          }
        }
        Packed(dout).store(s.dout, at, kMmaK * step);
        add_sums(at, dout, s.sums.out_bias[at.warp] + kMmaK * step);
      }
    }
    s.kept[at.side][threadIdx.x % kThreads] =
        Keep::draw(plan.hidden, first + at.token(at.side), at.t);
  }

  /// u and dz of this warp's half of the slab from hidden channel `begin` on to shared memory; db1;
  /// dh += dz W1.
  __device__ void hidden_slab(const Keep& keep, int begin, Accumulator (&dh)[kE / 8]) const {
    const int own = kRows * at.warp * kStride;
#pragma unroll 1
    for (int f = begin + kMmaK * at.side; f < begin + kSlab; f += 2 * kMmaK) {
      Accumulator u[2], dz[2];  // at first z without its bias, and du
#pragma unroll
      for (int e = 0; e < kE; e += kMmaK) {
        add_columns(Core::ldmatrix_a(s.h + own + e, kStride), s.w.in + f * kStride + e, kStride, u);
        add_rows(Core::ldmatrix_a(s.dout + own + e, kStride), s.w.out + e * kStrideF + f, kStrideF,
                 dz);
      }
      const Quad bias = quad_of(s.w.in_bias, f / kMmaK, at);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const Gelu gelu = gelu_of(entry(u, half, i) + bias.x[i]);
          const float factor = keep.factor(half, f / kMmaK, i);
          entry(u, half, i) = gelu.value * factor;
          entry(dz, half, i) *= gelu.derivative * factor;
        }
      }
      Packed(u).store(s.u, at, f - begin);
      const Packed rounded(dz);
      rounded.store(s.dz, at, f - begin);
      add_sums(at, dz, s.sums.in_bias[at.warp] + f);
      const Core::FragmentA a = rounded.fragment_a();
#pragma unroll
      for (int c = 0; c < kE / 8; c += 2) {
        add_rows(a, s.w.in + f * kStride + 8 * c, kStride, dh + c);
      }
    }
  }

  /// dh of the row that the other warp finishes.
  __device__ void hand_over(const Accumulator (&dh)[kE / 8]) const {
#pragma unroll
    for (int i = 0; i < kE / 4; ++i) {
      const float first_row = entry(dh, 0, i), second_row = entry(dh, 1, i);
      s.dh[1 - at.side][i][threadIdx.x % kThreads] = at.side == 0 ? second_row : first_row;
    }
  }

  /// dx of the lane's row; what it adds to the norm's own gradients. With n = (x - mean) inv_std and
  /// g = dh weight: dx = dy + inv_std (g - mean(g) - n mean(g n)).
  __device__ void norm_backward(const Accumulator (&both)[kE / 8], float* dx) const {
    const int token = at.token(at.side);
    const std::int64_t row = first + token;
    const Row<const float> x_row(in.x, plan.rows, plan.e, row, at);
    const Row<const float> dy_row(dy, plan.rows, plan.e, row, at);
    const float mean = s.mean[token], inv_std = s.inv_std[token];
    const int line = at.warp + kWarps * at.side;
    float g[kE / 4], n[kE / 4];
    float sum_g = 0, sum_gn = 0;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const Quad &weight = quad_of(s.w.norm_weight, step, at), x = x_row.load(step);
      float dh[4], dh_n[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int e = 4 * step + i;
        const float own = at.side == 0 ? entry(both, 0, e) : entry(both, 1, e);
        dh[i] = own + s.dh[at.side][e][threadIdx.x % kThreads];
        n[e] = (x.x[i] - mean) * inv_std;
        dh_n[i] = dh[i] * n[e];
        g[e] = dh[i] * weight.x[i];
        sum_g += g[e];
        sum_gn += g[e] * n[e];
      }
      add_sums(at, dh, s.sums.norm_bias[line] + kMmaK * step);
      add_sums(at, dh_n, s.sums.norm_weight[line] + kMmaK * step);
    }
    const float share = 1.0f / static_cast<float>(plan.e);
    const float mean_g = share * row_sum(sum_g), mean_gn = share * row_sum(sum_gn);
    const Row<float> to(dx, plan.rows, plan.e, row, at);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      Quad d = dy_row.load(step);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int e = 4 * step + i;
        d.x[i] += inv_std * (g[e] - mean_g - n[e] * mean_gn);
      }
      to.store(step, d);
    }
  }
};

__global__ void __launch_bounds__(kBackwardThreads, 1)
    backward_kernel(MlpPlan plan, Arrays in, const float* dy, float* dx, float* partial,
                    std::int64_t chunk_size, std::int64_t chunks) {
  auto& s = *reinterpret_cast<Shared*>(cuda::dynamic_shared());
  const MlpGradientPlaces to(plan.e, plan.f);
  const WarpTokens at;
  s.w.load<kBackwardThreads>(plan, in);
  for (std::int64_t chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
    for (int i = threadIdx.x; i < static_cast<int>(sizeof s.sums / sizeof(float));
         i += kBackwardThreads) {
      reinterpret_cast<float*>(&s.sums)[i] = 0;
    }
    WeightSums weights;
    __syncthreads();
    const std::int64_t end = math::min((chunk + 1) * chunk_size, plan.rows);
#pragma unroll 1
    for (std::int64_t first = chunk * chunk_size; first < end; first += kTokens) {
      const Work work{plan, in, dy, s, at, first};
      work.prepare();
      __syncthreads();
      const int lane = threadIdx.x % kThreads;
      const Keep keep(plan.hidden, s.kept[0][lane], s.kept[1][lane]);
      Accumulator dh[kE / 8];
      work.hidden_slab(keep, 0, dh);
      __syncthreads();
      weights.add<0>(s, at);
      __syncthreads();
      work.hidden_slab(keep, kSlab, dh);
      work.hand_over(dh);
      __syncthreads();
      weights.add<1>(s, at);
      work.norm_backward(dh, dx);
      __syncthreads();
    }
    float* const own = partial + chunk * to.size;
    weights.store(plan, to, at, own);
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
  const std::int64_t blocks = ceil_div(plan.rows, kTokens);
  const skytape::Work work{.multiply_adds = 2 * plan.rows * plan.e * plan.f, .product = true};
  cuda::launch({"mlp on tensor cores", grid_of(plan.rows), kThreads, 0, work}, forward_kernel, plan,
               arrays(x, w), y.data<float>(), blocks);
}

void mlp_backward_on(Cuda, const MlpPlan& plan, const Tensor& x, const MlpWeights& w,
                     const Tensor& dy, Tensor& dx, Tensor& dparams) {
  const std::int64_t chunk = chunk_tokens(plan.rows, 128);  // one block on a multiprocessor
  const std::int64_t chunks = ceil_div(plan.rows, chunk), size = dparams.numel();
  const Tensor partial = Tensor::empty({chunks, size}, DType::f32, Device::cuda);
  constexpr int kBytes = sizeof(Shared);
  static_assert(kBytes == 161024);  // as train/scripts/gpu_static.sh states
  const skytape::Work work{.multiply_adds = 5 * plan.rows * plan.e * plan.f, .product = true};
  cuda::launch(
      {"mlp backward on tensor cores", cuda::grid_for(chunks, 1), kBackwardThreads, kBytes, work},
      backward_kernel, plan, arrays(x, w), dy.data<float>(), dx.data<float>(),
      partial.data<float>(), chunk, chunks);
  columns<1, float>(1, chunks, size, PartialEntry<float>{partial.data<float>(), chunks, size},
                    dparams.data<float>());
}

}  // namespace skytape::tensor
