// The shared memory of the MLP's kernels (mlp.cu), and the norm of a lane's rows, CUDA only.
#pragma once

#include "tensor/gemm/tensor_core.hpp"
#include "tensor/launch/cuda.hpp"
#include "tensor/launch/gelu.hpp"
#include "tensor/mlp/mlp_plan.hpp"
#include "tensor/tokens/token_tiles.hpp"

namespace skytape::tensor::token_tiles::mlp_tiles {

constexpr int kE = kWidth, kF = 128;  // compiled widths
constexpr int kStrideF = kF + 8;      // as kStride, of rows of F
static_assert(kF == kWarps * kMmaK && kF <= philox::kChunk);

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
    load_weight<kF, kE>(a.in_weight, plan.f, plan.e, plan.e, in);
    load_weight<kE, kF>(a.out_weight, plan.e, plan.f, plan.f, out);
    load_vector(a.norm_weight, plan.e, norm_weight);
    load_vector(a.norm_bias, plan.e, norm_bias);
    load_vector(a.out_bias, plan.e, out_bias);
    load_vector(a.in_bias, plan.f, in_bias);
  }
};

/// Over the four lanes of a row.
__device__ inline float row_sum(float x) { return cuda::warp_reduce_up<1, 4>(x); }

/// The norm of the lane's rows.
struct Norm {
  float mean[2], inv_std[2];

  /// norm(x) of 16 channels.
  __device__ void apply(const Weights& w, int step, const WarpTokens& at, Accumulator* x) const {
    const Quad &weight = quad_of(w.norm_weight, step, at), &bias = quad_of(w.norm_bias, step, at);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& value = entry(x, half, i);
        value = (value - mean[half]) * inv_std[half] * weight.x[i] + bias.x[i];
      }
    }
  }
};

/// Returns the norm of rows that hold all their channels.
__device__ inline Norm norm_of(const MlpPlan& plan, const Rows<const float>& x,
                               const Accumulator (&rows)[kE / 8]) {
  Norm norm;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float sum = 0, squares = 0;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sum += entry(rows + 2 * step, half, i);
    }
    norm.mean[half] = plan.share * row_sum(sum);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float from_mean = entry(rows + 2 * step, half, i) - norm.mean[half];
        squares += x.has(half, step) ? from_mean * from_mean : 0.0f;
      }
    }
    const float variance = plan.share * row_sum(squares);
    norm.inv_std[half] = cuda::ptx::reciprocal_sqrt(variance + plan.epsilon);
  }
  return norm;
}

/// A block's values of its tokens, one row for each. They use the padding of rows of kStride
/// numbers.
struct InputRow {
  union {
    Number h[kE];
    float dh[kE / 2];  // of the first channels
  };
  std::uint32_t kept[4];  // of the hidden channels: bits of lane t (Keep)
};
struct GradientRow {
  union {
    Number dout[kE];   // dy through dropout
    float dh[kE / 2];  // of the other channels
  };
  float mean, inv_std, unused[2];
};
static_assert(sizeof(InputRow) == kStride * sizeof(Number));
static_assert(sizeof(GradientRow) == kStride * sizeof(Number));

constexpr int kStrideT = kTokens + 8;  // as kStride, of rows of tokens

/// The shared memory of a block of the backward kernel.
struct Shared {
  Weights w;
  alignas(16) InputRow inputs[kTokens];
  alignas(16) GradientRow gradients[kTokens];
  alignas(16) Number dz[kF * kStrideT];  // transposed: a row is a hidden channel
  // sums over the tokens of a warp
  float norm_weight[kWarps][kE], norm_bias[kWarps][kE], out_bias[kWarps][kE];

  /// Returns a tile's row, from channel e on.
  __device__ float* dh(int row, int e) {
    return e < kE / 2 ? inputs[row].dh + e : gradients[row].dh + (e - kE / 2);
  }
};

}  // namespace skytape::tensor::token_tiles::mlp_tiles
