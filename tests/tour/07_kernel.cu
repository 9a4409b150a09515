// Softmax attention of one head on a GPU, five times: from the kernel that anybody would write
// first to the one that tiled attention runs. Read them from top to bottom; each says what it has
// over the one before. A warp is 32 threads that run together, a lane one of them; a fragment is
// the part of a small matrix that a lane holds for a tensor core.
//
//   out_i = Σ_j w_ij v_j     w_ij = exp(scale q_i.k_j - m_i) / Σ_j exp(scale q_i.k_j - m_i)
//
// with m_i the row's maximum (in version 5 a score near it). N queries and as many keys, a multiple
// of 64; D = 32 channels. The real kernels also have masks, dropout, padding, gradients, and copies
// that run ahead (cp.async).
#include "tests/tour/07_kernel.hpp"

#include "attention/tiled/register_tiles.hpp"
#include "attention/tiled/tensor_core_tiles.hpp"
#include "tensor/launch/cuda.hpp"

namespace skytape::tour {
namespace {

constexpr int kD = kHeadWidth;

struct Head {
  const float *q, *k, *v;  // [N, D]
  float* out;              // [N, D]
  float* weights;          // [N, N], of the first version alone
  int n;
  float scale;

  [[nodiscard]] __device__ float score(const float* query, const float* key) const {
    float sum = 0;
    for (int c = 0; c < kD; ++c) sum += query[c] * key[c];
    return scale * sum;
  }
};

// ---- 1. naive -----------------------------------------------------------------------------------
// A thread has a query. Its row of weights goes to device memory, N² numbers in all, and comes back
// for every channel; and each thread reads all of k and v from there.
__global__ void naive_kernel(Head h) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= h.n) return;
  const float* const q = h.q + i * kD;
  float* const w = h.weights + i * h.n;  // [N]
  float maximum = -INFINITY, sum = 0;
  for (int j = 0; j < h.n; ++j) {
    w[j] = h.score(q, h.k + j * kD);
    maximum = fmaxf(maximum, w[j]);
  }
  for (int j = 0; j < h.n; ++j) {
    w[j] = expf(w[j] - maximum);
    sum += w[j];
  }
  for (int c = 0; c < kD; ++c) {
    float out = 0;
    for (int j = 0; j < h.n; ++j) out += w[j] * h.v[j * kD + c];
    h.out[i * kD + c] = out / sum;
  }
}

// ---- 2. one pass --------------------------------------------------------------------------------
// No N²: with a running maximum a row is done in one pass over the keys. Where a key moves the
// maximum, what has been added up so far shrinks by exp(old - new). Weights never leave registers.
__global__ void one_pass_kernel(Head h) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= h.n) return;
  float q[kD], out[kD] = {}, maximum = -INFINITY, sum = 0;
  for (int c = 0; c < kD; ++c) q[c] = h.q[i * kD + c];
  for (int j = 0; j < h.n; ++j) {
    const float score = h.score(q, h.k + j * kD);
    const float larger = fmaxf(maximum, score);
    const float rescale = expf(maximum - larger), weight = expf(score - larger);
    sum = rescale * sum + weight;
    for (int c = 0; c < kD; ++c) out[c] = rescale * out[c] + weight * h.v[j * kD + c];
    maximum = larger;
  }
  for (int c = 0; c < kD; ++c) h.out[i * kD + c] = out[c] / sum;
}

// ---- 3. tiles -----------------------------------------------------------------------------------
// A block owns kBlockM queries and walks the keys in tiles of kBlockN: k and v come from device
// memory once for all of its queries, not once for each. Everybody waits until a tile is there, and
// until all are done with it.
namespace tiles {
constexpr int kBlockM = 64, kBlockN = 32;
struct Shared {
  float k[kBlockN * kD], v[kBlockN * kD];
};
}  // namespace tiles

__global__ void tiles_kernel(Head h) {
  using namespace tiles;
  auto& shared = cuda::shared<Shared>();
  const int i = static_cast<int>(blockIdx.x) * kBlockM + static_cast<int>(threadIdx.x);
  float q[kD], out[kD] = {}, maximum = -INFINITY, sum = 0;
  for (int c = 0; c < kD; ++c) q[c] = h.q[i * kD + c];
  for (int j0 = 0; j0 < h.n; j0 += kBlockN) {
    __syncthreads();  // everybody is done with the last tile
    for (int e = threadIdx.x; e < kBlockN * kD; e += kBlockM) {
      shared.k[e] = h.k[j0 * kD + e];
      shared.v[e] = h.v[j0 * kD + e];
    }
    __syncthreads();  // the tile is there
    for (int j = 0; j < kBlockN; ++j) {
      const float score = h.score(q, shared.k + j * kD);
      const float larger = fmaxf(maximum, score);
      const float rescale = expf(maximum - larger), weight = expf(score - larger);
      sum = rescale * sum + weight;
      for (int c = 0; c < kD; ++c) out[c] = rescale * out[c] + weight * shared.v[j * kD + c];
      maximum = larger;
    }
  }
  for (int c = 0; c < kD; ++c) h.out[i * kD + c] = out[c] / sum;
}

// ---- 4. registers -------------------------------------------------------------------------------
// Now each multiply-add waits for its load from shared memory. A thread therefore makes a tile of
// kThreadM x kThreadN scores, and loads four channels at a time: kThreadM + kThreadN loads serve 4
// kThreadM kThreadN multiply-adds. Weights pass through shared memory to the threads that add up
// channels. Here 128 threads are 8 x 16: of the scores of 64 queries x 64 keys each has 8 x 4, of
// out 4 rows x 4 channels. From here on these are the parts of the real kernels: this is what
// attention/tiled/tiled.cu does, and attention/blocks/block_attention.cu with a list of tiles.
namespace registers {
using namespace attention::register_tiles;
using S = Tiling<float, kD, /*kThreadsOfM=*/8, /*kLong=*/false>;
struct Shared {
  alignas(16) float q[S::kBlockM * S::kStride];
  alignas(16) float k[S::kBlockN * S::kStride], v[S::kBlockN * S::kStride];
  alignas(16) float weights[S::kBlockM * S::kWeightStride];
  float row_factor[S::kBlockM];  // rescales sums; at the end 1 / sum of weights
};

__device__ void load(const float* rows, int count, float* to) {
  for (int e = 4 * static_cast<int>(threadIdx.x); e < count * kD; e += 4 * S::kThreads) {
    Four<float>::at(rows + e).store(to + e / kD * S::kStride + e % kD);
  }
}
}  // namespace registers

__global__ void __launch_bounds__(registers::S::kThreads) registers_kernel(Head h) {
  using namespace registers;
  auto& shared = *reinterpret_cast<Shared*>(cuda::dynamic_shared());
  const ThreadTile at;
  const int i0 = static_cast<int>(blockIdx.x) * S::kBlockM;
  load(h.q + i0 * kD, S::kBlockM, shared.q);
  WeightedSums<S, float> out;
  SoftmaxRows<S, float> rows;
  for (int j0 = 0; j0 < h.n; j0 += S::kBlockN) {
    __syncthreads();
    load(h.k + j0 * kD, S::kBlockN, shared.k);
    load(h.v + j0 * kD, S::kBlockN, shared.v);
    __syncthreads();
    float score[S::kThreadM][S::kThreadN];
    products<S>(at, shared.q, shared.k, score);
    for (int r = 0; r < S::kThreadM; ++r) {
      for (int c = 0; c < S::kThreadN; ++c) score[r][c] *= kLog2E<float> * h.scale;  // for exp2
      rows.add(at, r, score[r], shared.row_factor);
    }
    store_weights<S>(at, score, shared.weights);
    __syncthreads();
    out.multiply(shared.row_factor);  // what has been added up shrinks
    out.add(shared.weights, shared.v);
  }
  rows.finish(at, shared.row_factor, [](int) -> float* { return nullptr; });
  out.multiply(shared.row_factor);
  out.store(
      1.0f, [&](int row) { return h.out + (i0 + row) * kD; }, kD);
}

// ---- 5. tensor cores ----------------------------------------------------------------------------
// One instruction of a warp is 16 x 8 x 16 multiply-adds, of operands rounded to bf16 with f32
// accumulators. A warp owns 16 queries, whose fragments A stay in registers. The accumulators of
// the scores lie with the lanes as fragments A do (the lane map of tensor/gemm/README.md), so that
// weights do not pass through shared memory any more. m_i is the largest of a row's first scores,
// and moves only where sums grow too large. The real one is attention/tiled/tiled_tensor_core.cu:
// its warps own twice as many queries at bf16, it copies the next tile while this one is used, and
// another kernel has rounded the rows before. The names used here are those of
// attention/tiled/tensor_core_tiles.hpp and tensor/gemm/tensor_core.hpp: read both now.
namespace tensor_cores {
using namespace attention::tensor_core_tiles;
using P = Products<Precision::bf16, kD>;
struct Shared {
  P::Tile k, v;
};

/// The warp's rows of [.., kD] from `first` on as fragments A, rounded.
__device__ void load_own(const WarpRows& at, const float* first, P::Own& own) {
  for (int s = 0; s < P::kSteps; ++s) {
    P::Number n[2][4];
    for (int half = 0; half < 2; ++half) {
      const float* const from = first + at.row_of(half) * kD + kMmaK * s + 2 * at.t;
      for (int i = 0; i < 4; ++i) n[half][i] = P::Core::rounded(from[i % 2 + i / 2 * 8]);
    }
    own[0][s] = P::Core::fragment_a(n);
  }
}
/// Rows [kBlockN, kD] to shared memory, rounded, by all threads of the block.
__device__ void load_tile(const float* first, P::Tile& tile) {
  for (int e = static_cast<int>(threadIdx.x); e < kBlockN * kD; e += kThreads) {
    tile.n[e / kD * P::kStride + e % kD] = P::Core::rounded(first[e]);
  }
}
}  // namespace tensor_cores

__global__ void __launch_bounds__(tensor_cores::kThreads) tensor_cores_kernel(Head h) {
  using namespace tensor_cores;
  auto& shared = cuda::shared<Shared>();
  const WarpRows at;
  const int i0 = static_cast<int>(blockIdx.x) * kBlockM;
  P::Own q;
  load_own(at, h.q + i0 * kD, q);
  P::Total out;
  RunningSoftmax<P> running;
  for (int j0 = 0; j0 < h.n; j0 += kBlockN) {
    __syncthreads();
    load_tile(h.k + j0 * kD, shared.k);
    load_tile(h.v + j0 * kD, shared.v);
    __syncthreads();
    constexpr int kEights = kBlockN / kMmaN;
    Accumulator weight[kEights][1];
    Weights<P, kEights> rounded;
    const auto multiply = [&](Accumulator(&score)[kEights][1]) {
      for (int n = 0; n < kEights; ++n) {
        score[n][0] = {};
        P::add_scores(at, q, shared.k, kMmaN * n, score[n]);
      }
    };
    running.weigh(multiply, kLog2E * h.scale, weight, rounded, out);
    for (int k = 0; k < kBlockN; k += kMmaK) P::add_weighted(rounded[k / kMmaK], shared.v, k, out);
  }
  const float inverse_sum[1][2] = {{running.inverse(0, 0), running.inverse(0, 1)}};
  P::store(
      out, inverse_sum, [&](int row) { return h.out + (i0 + row) * kD; }, kD);
}

/// Each lane's number at the entries that it holds; see LaneMap.
__global__ void lane_map_kernel(int* a, int* b, int* c) {
  const cuda::LaneMap at;
  const int lane = static_cast<int>(threadIdx.x);
  for (int half = 0; half < 2; ++half) {
    for (int e = 0; e < 2; ++e) {
      c[(at.g + 8 * half) * 8 + 2 * at.t + e] = lane;
      b[(2 * at.t + 8 * half + e) * 8 + at.g] = lane;
      for (int k = 0; k < 2; ++k) a[(at.g + 8 * half) * 16 + 2 * at.t + 8 * k + e] = lane;
    }
  }
}

}  // namespace

Tensor attend_on(Cuda, Version version, const Tensor& q, const Tensor& k, const Tensor& v) {
  const std::int64_t n = q.size(0);
  Tensor out = empty_like(q);                                              // [N, D]
  const Tensor weights = Tensor::empty({n, n}, DType::f32, Device::cuda);  // [N, N]
  const Head h{q.data<float>(),       k.data<float>(),     v.data<float>(), out.data<float>(),
               weights.data<float>(), static_cast<int>(n), kScale};
  const auto blocks = [&](int rows) { return static_cast<unsigned>(n / rows); };
  switch (version) {
    case Version::naive:
      cuda::launch({"naive", blocks(64), 64}, naive_kernel, h);
      break;
    case Version::one_pass:
      cuda::launch({"one pass", blocks(64), 64}, one_pass_kernel, h);
      break;
    case Version::tiles:
      cuda::launch({"tiles", blocks(tiles::kBlockM), tiles::kBlockM}, tiles_kernel, h);
      break;
    case Version::registers:
      cuda::launch({"registers", blocks(registers::S::kBlockM), registers::S::kThreads,
                    sizeof(registers::Shared)},
                   registers_kernel, h);
      break;
    case Version::tensor_cores:
      cuda::launch({"tensor cores", blocks(tensor_cores::kBlockM), tensor_cores::kThreads},
                   tensor_cores_kernel, h);
  }
  return out;
}

LaneMaps lane_maps_on(Cuda) {
  const auto map = [](const Shape& shape) {
    return Tensor::empty(shape, DType::i32, Device::cuda);
  };
  const LaneMaps maps{map({16, 16}), map({16, 8}), map({16, 8})};
  cuda::launch({"lane map", 1, cuda::kWarp}, lane_map_kernel, maps.a.data<std::int32_t>(),
               maps.b.data<std::int32_t>(), maps.c.data<std::int32_t>());
  return maps;
}

}  // namespace skytape::tour
