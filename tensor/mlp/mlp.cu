// The MLP as one kernel each way, after FlashAttention's pattern: what lies between x and y,
// [B, N, F], stays on chip. Products are bf16 with f32 sums; norm, GELU, dropout and the residual
// are f32.
//
// A warp owns 16 tokens, a block 128 and, rounded in shared memory, all weights. Narrower models
// are padded with zeros to the compiled widths. The equations and their gradients stand in mlp.hpp
// and mlp.cpp.
//
//   forward    h, z, u of 16 hidden channels at a time go from product to product in registers;
//   backward   leaves h and do of a block's tokens in shared memory. From these each warp computes
//              z, u and dz of 16 hidden channels of all tokens, so that dW1, db1 and dW2 of these
//              channels stay in its registers and dz alone is exchanged: a warp then has dh and dx
//              of its tokens. A block adds up chunk_tokens, and the sums of all blocks are added in
//              order.
#include <cstdint>

#include "tensor/core/tensor.hpp"
#include "tensor/launch/columns.hpp"
#include "tensor/launch/cuda.hpp"
#include "tensor/mlp/mlp_plan.hpp"
#include "tensor/mlp/mlp_tiles.hpp"

namespace skytape::tensor {
namespace {

using namespace token_tiles;
using namespace token_tiles::mlp_tiles;

// ---- forward -----------------------------------------------------------------------------------

/// Stores the values that backward needs of a warp's tokens: which numbers dropout keeps, and the
/// norm's.
__device__ __forceinline__ void store_metadata(const MlpPlan& plan, MlpMetadata* metadata,
                                               std::int64_t first, const WarpTokens& at,
                                               const Keep& hidden, const Keep& output,
                                               const Norm& norm) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const std::int64_t row = first + at.token(half);
    if (row >= plan.rows) continue;
    metadata[row].hidden[at.t] = hidden.bits(half);
    metadata[row].output[at.t] = static_cast<std::uint16_t>(output.bits(half));
    if (at.t == 0) metadata[row].mean = norm.mean[half];
    if (at.t == 0) metadata[row].inv_std = norm.inv_std[half];
  }
}

__global__ void __launch_bounds__(kThreads, 2)
    forward_kernel(MlpPlan plan, Arrays in, float* y, MlpMetadata* metadata, std::int64_t blocks) {
  auto& w = cuda::shared<Weights>();
  const WarpTokens at;
  prefetch_rows(in.x, plan.rows, plan.e, std::int64_t{blockIdx.x} * kTokens);
  w.load(plan, in);
  __syncthreads();
  for (std::int64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
    const std::int64_t first = block * kTokens;
    prefetch_rows(in.x, plan.rows, plan.e, first + std::int64_t{gridDim.x} * kTokens);
    const Rows<const float> x(in.x, plan.rows, plan.e, first, at);
    Core::FragmentA h[kSteps];
    Keep keep_hidden(plan.hidden, first, at);
    const Keep keep(plan.output, first, at);
    {
      Accumulator rows[kE / 8];
#pragma unroll
      for (int step = 0; step < kSteps; ++step) load_step(x, step, rows + 2 * step);
      const Norm norm = norm_of(plan, x, rows);
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        norm.apply(w, step, at, rows + 2 * step);
        h[step] = Packed(rows + 2 * step).fragment_a();
      }
      store_metadata(plan, metadata, first, at, keep_hidden, keep, norm);
    }
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
          z = gelu(z + bias.x[i]).value * keep_hidden.factor(half, 0, i);
        }
      }
      keep_hidden.advance();
      const Core::FragmentA a = Packed(u).fragment_a();
#pragma unroll
      for (int c = 0; c < kE / 8; c += 2) {
        add_columns(a, w.out + 8 * c * kStrideF + f, kStrideF, out + c);
      }
    }
    const Rows<float> to(y, plan.rows, plan.e, first, at);
    add_to_residual(at, out, w.out_bias, keep, x, to);
  }
}

// ---- backward ----------------------------------------------------------------------------------

/// Gradients, of the tokens so far, of what a warp's 16 hidden channels are made with and go to.
struct HiddenSums {
  Accumulator in[kE / 8];       // dW1: 16 rows
  Accumulator out[kE / 16][2];  // dW2: 16 columns
  float in_bias[2] = {};        // db1: of rows g and g + 8, this lane's tokens

  __device__ void store(const MlpPlan& plan, const MlpGradientPlaces& to, const WarpTokens& at,
                        float* all) const {
    const int own = kRows * at.warp;
    float* const in_weight = all + to.in_weight;
    float* const out_weight = all + to.out_weight;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = channel_of(at.g + 8 * half), column = 4 * at.t;
      const float bias = row_sum(in_bias[half]);
      if (at.t == 0 && own + row < plan.f) all[to.in_bias + own + row] = bias;
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        const int e = kMmaK * step;
        if (own + row < plan.f && e + column < plan.e) {
          quad_of(in + 2 * step, half).store(in_weight + (own + row) * plan.e + e + column);
        }
        if (own + column < plan.f && e + row < plan.e) {
          quad_of(out[step], half).store(out_weight + (e + row) * plan.f + own + column);
        }
      }
    }
  }
};

/// The backward kernel's work on a block's next tokens, at most 128.
struct Work {
  const MlpPlan& plan;
  Shared& s;
  WarpTokens at;
  int tokens;
  const float *x, *dy;  // [tokens, E]
  const MlpMetadata* metadata;

  /// Returns whether the warp has some. From the shuffle the compiler knows that its lanes agree.
  __device__ bool has_tokens() const {
    return kRows * __shfl_sync(cuda::kAllLanes, at.warp, 0) < tokens;
  }

  /// h and do of the warp's tokens to shared memory; db2.
  __device__ void prepare() const {
    Norm norm{};
    std::uint32_t kept[2] = {};  // of the output
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      std::uint32_t& hidden = s.inputs[at.row(half)].kept[at.t];
      hidden = 0;
      if (at.token(half) >= tokens) continue;
      const MlpMetadata& of = metadata[at.token(half)];
      hidden = of.hidden[at.t];
      kept[half] = of.output[at.t];
      norm.mean[half] = of.mean;
      norm.inv_std[half] = of.inv_std;
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (at.t != 0) continue;
      s.gradients[at.row(half)].mean = norm.mean[half];
      s.gradients[at.row(half)].inv_std = norm.inv_std[half];
    }
    const Rows<const float> x_rows(x, tokens, plan.e, 0, at);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      Accumulator h[2];
      load_step(x_rows, step, h);
      norm.apply(s.w, step, at, h);
      Packed(h).store(s.inputs[0].h, at, kMmaK * step);
    }
    const Rows<const float> dy_rows(dy, tokens, plan.e, 0, at);
    const Keep keep(plan.output, kept[0], kept[1]);
    load_part(dy_rows, keep, at, s.gradients[0].dout, s.out_bias[at.warp]);
  }

  /// dz of the warp's hidden channels, of all tokens, to shared memory; dW1, db1 and dW2. Products
  /// are transposed: their rows are channels, and u and dz are the next products' operands as they
  /// are.
  __device__ void hidden(HiddenSums& sums) const {
    const int own = kRows * at.warp;
    Core::FragmentA in_weight[kSteps];
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      in_weight[step] = Core::ldmatrix_a(s.w.in + own * kStride + kMmaK * step, kStride);
    }
    float bias[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      bias[half] = s.w.in_bias[own + channel_of(at.g + 8 * half)];
    }
#pragma unroll 1
    for (int token = 0; token < tokens; token += kMmaK) {
      const Number *const h = s.inputs[token].h, *const dout = s.gradients[token].dout;
      Accumulator u[2], dz[2];  // at first z without its bias, and du
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        const int e = kMmaK * step;
        add_columns(in_weight[step], h + e, kStride, u);
        add_columns(Core::ldmatrix_a_trans(s.w.out + e * kStrideF + own, kStrideF), dout + e,
                    kStride, dz);
      }
#pragma unroll
      for (int eight = 0; eight < 2; ++eight) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const std::uint32_t bits =
              s.inputs[token + 8 * eight + 2 * at.t + i].kept[at.g / 2] >> (4 * at.warp + at.g % 2);
#pragma unroll
          for (int half = 0; half < 2; ++half) {  // channels that differ by 2
            const Gelu found = gelu(u[eight].x[half][i] + bias[half]);
            const float factor = (bits >> (2 * half) & 1u) != 0 ? plan.hidden.scale : 0.0f;
            u[eight].x[half][i] = found.value * factor;
            dz[eight].x[half][i] *= found.derivative * factor;
            sums.in_bias[half] += dz[eight].x[half][i];
          }
        }
      }
      const Packed rounded_u(u);
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        const Core::FragmentA a = Core::ldmatrix_a_trans(dout + kMmaK * step, kStride);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          Core::mma(sums.out[step][half], a, rounded_u.fragment_b(half));
        }
      }
      const Packed rounded(dz);
      rounded.store(s.dz + own * kStrideT + token, kStrideT, at);
      const Core::FragmentA a = rounded.fragment_a();
#pragma unroll
      for (int c = 0; c < kE / 8; c += 2) add_rows(a, h + 8 * c, kStride, sums.in + c);
    }
  }

  /// dh of the warp's tokens to where their h and do were; what all warps need of these is done.
  __device__ void input_gradient() const {
    Accumulator dh[kE / 8];
#pragma unroll 2
    for (int f = 0; f < kF; f += kMmaK) {
      const Core::FragmentA a =
          Core::ldmatrix_a_trans(s.dz + f * kStrideT + kRows * at.warp, kStrideT);
#pragma unroll
      for (int c = 0; c < kE / 8; c += 2) {
        add_rows(a, s.w.in + f * kStride + 8 * c, kStride, dh + c);
      }
    }
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        quad_of(dh + 2 * step, half).store(s.dh(at.row(half), kMmaK * step + 4 * at.t));
      }
    }
    __syncwarp();
  }

  /// dx of the warp's tokens; what they add to the norm's own gradients. With n = (x - mean)
  /// inv_std and g = dh weight: dx = dy + inv_std (g - mean(g) - n mean(g n)). Half a warp has a
  /// token.
  __device__ void norm_backward(float* dx) const {
    constexpr int kLanes = kWarp / 2;
    const int second = threadIdx.x % kWarp / kLanes, e = threadIdx.x % kLanes * 4;
    const Quad weight = Quad::at(s.w.norm_weight + e);
    Quad dweight{}, dbias{};
    const int rows = kRows * at.warp + 8 * second;  // the half's of the tile
    const float* const dh_rows = s.dh(rows, e);
    const int begin = kRows * at.warp + second, left = e < plan.e ? tokens - begin : 0;
    int place = begin * plan.e + e;
#pragma unroll 2
    for (int g = 0; g < kRows / 2; ++g) {
      const bool inside = 2 * g < left;
      const Quad own = inside ? Quad::at(x + place) : Quad{};
      Quad d = inside ? Quad::at(dy + place) : Quad{};
      const Quad dh = Quad::at(dh_rows + g * (kStride / 2));
      const float mean = s.gradients[rows + g].mean, inv_std = s.gradients[rows + g].inv_std;
      float n[4], gain[4], sum = 0, sum_n = 0;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        n[i] = (own.x[i] - mean) * inv_std;
        dbias.x[i] += dh.x[i];
        dweight.x[i] += dh.x[i] * n[i];
        gain[i] = dh.x[i] * weight.x[i];
        sum += gain[i];
        sum_n += gain[i] * n[i];
      }
      const float mean_g = plan.share * cuda::warp_reduce_up<1, kLanes>(sum);
      const float mean_gn = plan.share * cuda::warp_reduce_up<1, kLanes>(sum_n);
#pragma unroll
      for (int i = 0; i < 4; ++i) d.x[i] += inv_std * (gain[i] - mean_g - n[i] * mean_gn);
      if (inside) d.store(dx + place);
      place += 2 * plan.e;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float both_weight = cuda::warp_reduce_up<kLanes, kWarp>(dweight.x[i]);
      const float both_bias = cuda::warp_reduce_up<kLanes, kWarp>(dbias.x[i]);
      if (second != 0) continue;
      s.norm_weight[at.warp][e + i] += both_weight;
      s.norm_bias[at.warp][e + i] += both_bias;
    }
    __syncwarp();  // the next tokens' rows take the place of these
  }
};

// Two blocks on a multiprocessor; a block has a chunk.
__global__ void __launch_bounds__(kThreads, 2)
    backward_kernel(MlpPlan plan, Arrays in, const MlpMetadata* metadata, const float* all_dy,
                    float* dx, float* partial, std::int64_t chunk_size) {
  auto& s = *reinterpret_cast<Shared*>(cuda::dynamic_shared());
  const MlpGradientPlaces to(plan.e, plan.f);
  const WarpTokens at;
  const std::int64_t begin = blockIdx.x * chunk_size;
  const int tokens = static_cast<int>(math::min(chunk_size, plan.rows - begin));
  const float *const x = in.x + begin * plan.e, *const dy = all_dy + begin * plan.e;
  s.w.load(plan, in);
  for (int i = threadIdx.x; i < 3 * kWarps * kE; i += kThreads) (&s.norm_weight[0][0])[i] = 0;
  __syncthreads();
  HiddenSums sums;
#pragma unroll 1
  for (int first = 0; first < tokens; first += kTokens) {
    const Work work{plan,
                    s,
                    at,
                    math::min(kTokens, tokens - first),
                    x + first * plan.e,
                    dy + first * plan.e,
                    metadata + begin + first};
    const bool has = work.has_tokens();
    work.prepare();
    __syncthreads();
    work.hidden(sums);
    __syncthreads();
    if (has) {
      work.input_gradient();
      work.norm_backward(dx + (begin + first) * plan.e);
    }
  }
  __syncthreads();
  float* const own = partial + blockIdx.x * to.size;
  sums.store(plan, to, at, own);
  store_sums(s.norm_weight, plan.e, own + to.norm_weight);
  store_sums(s.norm_bias, plan.e, own + to.norm_bias);
  store_sums(s.out_bias, plan.e, own + to.out_bias);
}

Arrays arrays(const Tensor& x, const MlpWeights& w) {
  return {x.data<float>(),           w.norm_weight.data<float>(), w.norm_bias.data<float>(),
          w.in_weight.data<float>(), w.in_bias.data<float>(),     w.out_weight.data<float>(),
          w.out_bias.data<float>()};
}

}  // namespace

bool mlp_has_room_on(Cuda) { return cuda::has_shared(sizeof(Shared)); }

void mlp_on(Cuda, const MlpPlan& plan, const Tensor& x, const MlpWeights& w, Tensor& y,
            Tensor& metadata) {
  const std::int64_t blocks = ceil_div(plan.rows, kTokens);
  cuda::launch({"mlp on tensor cores", grid_of(plan.rows), kThreads}, forward_kernel, plan,
               arrays(x, w), y.data<float>(),
               reinterpret_cast<MlpMetadata*>(metadata.data<std::int32_t>()), blocks);
}

void mlp_backward_on(Cuda, const MlpPlan& plan, const Tensor& x, const MlpWeights& w,
                     const Tensor& metadata, const Tensor& dy, Tensor& dx, Tensor& dparams) {
  const std::int64_t chunk = chunk_tokens(plan.rows);
  const std::int64_t chunks = ceil_div(plan.rows, chunk), size = dparams.numel();
  const Tensor partial = Tensor::empty({chunks, size}, DType::f32, Device::cuda);
  constexpr int kBytes = sizeof(Shared);
  cuda::launch({"mlp backward on tensor cores", static_cast<unsigned>(chunks), kThreads, kBytes},
               backward_kernel, plan, arrays(x, w),
               reinterpret_cast<const MlpMetadata*>(metadata.data<std::int32_t>()),
               dy.data<float>(), dx.data<float>(), partial.data<float>(), chunk);
  columns<1, float>(1, chunks, size, PartialEntry<float>{partial.data<float>(), chunks, size},
                    dparams.data<float>());
}

}  // namespace skytape::tensor
