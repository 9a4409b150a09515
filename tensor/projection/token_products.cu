// Projections of a layer as one kernel each way: those before attention, the one behind it with
// dropout and residual, and the gradients of both kinds. A warp owns 16 tokens, a block 128 and all
// weights (token_tiles.hpp).
//
//   project_kernel    y = x Wᵀ + b of all projections, by head, from one reading of x;
//   merge_kernel      y = x + drop(merge(a) Wᵀ + b); the products' result leaves registers once;
//   backward_kernel   from gradients dy of a projection's results and what it read, in, with 128
//                     tokens of both in shared memory: din = dy W, each warp its own, and dW = dyᵀ
//                     in, all warps together. Several projections of one input add up their din. A
//                     block has chunk_tokens; the sums of all blocks are added in order afterwards.
#include <cstdint>

#include "tensor/core/tensor.hpp"
#include "tensor/launch/columns.hpp"
#include "tensor/launch/cuda.hpp"
#include "tensor/projection/token_products.hpp"
#include "tensor/tokens/token_tiles.hpp"

namespace skytape::tensor {
namespace {

using namespace token_tiles;

/// The lane's rows as heads side by side, [H D], in memory by head, [B, H, N, D] with D a multiple
/// of 4; zeros beyond the last one, beyond H D, and everywhere if there is no array.
template <class T> struct HeadRows {
  T* row[2];
  int steps[2];  // as in Rows
  const TokenPlan& plan;
  int channel;  // the lane's first
  __device__ HeadRows(T* all, const TokenPlan& sizes, std::int64_t first, const WarpTokens& at)
      : plan(sizes), channel(4 * at.t) {
    const int width = static_cast<int>(plan.heads.out());
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::int64_t r = first + at.token(half);
      const bool inside = all != nullptr && r < plan.heads.rows();
      row[half] = inside ? all + plan.heads.place_of_row(r) : nullptr;
      steps[half] = inside ? ceil_div(width - channel, kMmaK) : 0;
    }
  }
  /// Reads ahead what a block needs next, as far as it is of one sequence.
  __device__ static void prefetch(const float* all, const TokenPlan& plan, std::int64_t first) {
    const HeadsPlan& heads = plan.heads;
    const int h = threadIdx.x, n = static_cast<int>(heads.n), d = static_cast<int>(heads.d);
    if (all == nullptr || h * d >= heads.out() || first >= heads.rows()) return;
    const int count = math::min(n - static_cast<int>(first) % n, kTokens);
    cuda::prefetch(all + heads.place_of_row(first) + h * heads.n * d, count * d);
  }
  __device__ bool has(int half, int step) const { return step < steps[half]; }
  __device__ T* place(int half, int step) const {
    return row[half] + plan.place_of_column(channel + kMmaK * step);
  }
  __device__ Quad load(int half, int step) const {
    return has(half, step) ? Quad::at(place(half, step)) : Quad{};
  }
  __device__ void store(int half, int step, const Quad& quad) const {
    if (has(half, step)) quad.store(place(half, step));
  }
};

// ---- forward -----------------------------------------------------------------------------------

struct ProjectShared {
  alignas(16) Number weight[kMostProjections][kWidth * kStride];
  alignas(16) float bias[kMostProjections][kWidth];
};

__global__ void __launch_bounds__(kThreads, 2)
    project_kernel(TokenPlan plan, ProjectionArrays<float> in, std::int64_t blocks) {
  auto& shared = cuda::shared<ProjectShared>();
  const int width = static_cast<int>(plan.heads.width), out = static_cast<int>(plan.heads.out());
  const int parts = static_cast<int>(plan.heads.parts);
  const WarpTokens at;
  for (int part = 0; part < parts; ++part) {
    load_weight<kWidth, kWidth>(in.weight.at(part), out, width, width, shared.weight[part]);
    load_vector(in.bias.at(part), in.bias.at(part) == nullptr ? 0 : out, shared.bias[part]);
  }
  __syncthreads();
  for (std::int64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
    const std::int64_t first = block * kTokens;
    const Rows<const float> x(in.x, plan.heads.rows(), width, first, at);
    Core::FragmentA a[kSteps];
    load_a(x, 0, a);
    for (int part = 0; part < parts; ++part) {
      const HeadRows<float> y(in.y + part * plan.heads.part_size(), plan, first, at);
      Accumulator sums[kWidth / 8];
      multiply(a, shared.weight[part], sums);
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        const Quad& bias = quad_of(shared.bias[part], step, at);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          Quad quad;
#pragma unroll
          for (int i = 0; i < 4; ++i) quad.x[i] = entry(sums + 2 * step, half, i) + bias.x[i];
          y.store(half, step, quad);
        }
      }
    }
  }
}

struct MergeArrays {
  const float* x;       // [B N, E]
  const float* a;       // [B, H, N, D]
  const float* weight;  // [E, H D]
  const float* bias;    // [E]
  float* y;             // [B N, E]
};

struct MergeShared {
  alignas(16) Number weight[kWidth * kStride];
  alignas(16) float bias[kWidth];
};

__global__ void __launch_bounds__(kThreads, 2)
    merge_kernel(TokenPlan plan, MergeArrays in, std::int64_t blocks) {
  auto& shared = cuda::shared<MergeShared>();
  const int e_width = static_cast<int>(plan.heads.width);
  const WarpTokens at;
  const int merged = static_cast<int>(plan.heads.out());
  const auto read_ahead = [&](std::int64_t first) {
    HeadRows<const float>::prefetch(in.a, plan, first);
    prefetch_rows(in.x, plan.heads.rows(), e_width, first);
  };
  read_ahead(std::int64_t{blockIdx.x} * kTokens);
  load_weight<kWidth, kWidth>(in.weight, e_width, merged, merged, shared.weight);
  load_vector(in.bias, e_width, shared.bias);
  __syncthreads();
  for (std::int64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
    const std::int64_t first = block * kTokens;
    read_ahead(first + std::int64_t{gridDim.x} * kTokens);
    Core::FragmentA a[kSteps];
    load_a(HeadRows<const float>(in.a, plan, first, at), 0, a);
    const HeldRows x(Rows<const float>(in.x, plan.heads.rows(), e_width, first, at));
    const Keep keep(plan.dropout, first, at);
    Accumulator out[kWidth / 8];
    multiply(a, shared.weight, out);
    const Rows<float> y(in.y, plan.heads.rows(), e_width, first, at);
    add_to_residual(at, out, shared.bias, keep, x, y);
  }
}

// ---- backward ----------------------------------------------------------------------------------

/// The shared memory of projections from rows of `in` to rows of `out` channels.
template <int kParts> struct Shared {
  alignas(16) Number weight[kParts][kWidth * kStride];  // [out, in]
  alignas(16) Number in[kTokens * kStride], dy[kParts][kTokens * kStride];
  float bias[kParts][kWarps][kWidth];  // sums of dy, by warp
};

/// dW of the tokens so far: a warp owns 16 rows of each part by half of the columns.
template <int kParts> struct WeightSums {
  static constexpr int kTiles = kWidth / 8 / 2;
  Accumulator x[kParts][kTiles];

  __device__ static int row(const WarpTokens& at) { return kRows * (at.warp % 4); }
  __device__ static int column(const WarpTokens& at) { return kWidth / 2 * (at.warp / 4); }

  /// `part` is known when loops are unrolled: sums stay in registers.
  __device__ void add(int part, const Shared<kParts>& s, const WarpTokens& at) {
#pragma unroll 2
    for (int token = 0; token < kTokens; token += kMmaK) {
      const Core::FragmentA a =
          Core::ldmatrix_a_trans(s.dy[part] + token * kStride + row(at), kStride);
#pragma unroll
      for (int c = 0; c < kTiles; c += 2) {
        add_rows(a, s.in + token * kStride + column(at) + 8 * c, kStride, x[part] + c);
      }
    }
  }
  /// To [P, out, in].
  __device__ void store(const WarpTokens& at, int parts, int out, int in, float* all) const {
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      if (part >= parts) break;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int o = channel_of(row(at) + at.g + 8 * half);
#pragma unroll
        for (int c = 0; c < kTiles; c += 2) {
          const int e = column(at) + 8 * c + 4 * at.t;
          if (o >= out || e >= in) continue;
          quad_of(x[part] + c, half).store(all + (part * out + o) * in + e);
        }
      }
    }
  }
};
static_assert(kWarps == 8 && kWidth == 64);

/// Sides of project_heads: dy by head, what it read and its gradient in rows [B N, E].
struct ProjectSides {
  static constexpr int kParts = kMostProjections;
  TokenPlan plan;
  OfEach<const float> dy;
  const float* in;
  float* din;

  __device__ int out() const { return static_cast<int>(plan.heads.out()); }
  __device__ int width() const { return static_cast<int>(plan.heads.width); }
  __device__ HeadRows<const float> dy_rows(int part, std::int64_t first,
                                           const WarpTokens& at) const {
    return {dy.at(part), plan, first, at};
  }
  __device__ Rows<const float> in_rows(std::int64_t first, const WarpTokens& at) const {
    return {in, plan.heads.rows(), width(), first, at};
  }
  __device__ Rows<float> din_rows(std::int64_t first, const WarpTokens& at) const {
    return {din, plan.heads.rows(), width(), first, at};
  }
  struct Whole {
    __device__ float factor(int, int, int) const { return 1; }
  };
  __device__ Whole kept(std::int64_t, const WarpTokens&) const { return {}; }
};

/// Sides of merge_heads: dy in rows [B N, E] through dropout, the other side by head.
struct MergeSides {
  static constexpr int kParts = 1;
  TokenPlan plan;
  const float* dy;
  const float* in;
  float* din;

  __device__ int out() const { return static_cast<int>(plan.heads.width); }
  __device__ int width() const { return static_cast<int>(plan.heads.out()); }
  __device__ Rows<const float> dy_rows(int, std::int64_t first, const WarpTokens& at) const {
    return {dy, plan.heads.rows(), out(), first, at};
  }
  __device__ HeadRows<const float> in_rows(std::int64_t first, const WarpTokens& at) const {
    return {in, plan, first, at};
  }
  __device__ HeadRows<float> din_rows(std::int64_t first, const WarpTokens& at) const {
    return {din, plan, first, at};
  }
  __device__ Keep kept(std::int64_t first, const WarpTokens& at) const {
    return {plan.dropout, first, at};
  }
};

/// din += dy W of the warp's rows.
__device__ void add_product(const WarpTokens& at, const Number* dy, const Number* weight,
                            Accumulator (&din)[kWidth / 8]) {
  const Number* const own = dy + kRows * at.warp * kStride;
#pragma unroll
  for (int step = 0; step < kWidth; step += kMmaK) {
    const Core::FragmentA a = Core::ldmatrix_a(own + step, kStride);
#pragma unroll
    for (int c = 0; c < kWidth / 8; c += 2) {
      add_rows(a, weight + step * kStride + 8 * c, kStride, din + c);
    }
  }
}

/// A block has a chunk.
template <class Sides> __global__ void __launch_bounds__(kThreads, 2)
    backward_kernel(Sides sides, OfEach<const float> weight, float* partial,
                    std::int64_t chunk_size) {
  constexpr int kParts = Sides::kParts;
  auto& s = *reinterpret_cast<Shared<kParts>*>(cuda::dynamic_shared());
  const int parts = static_cast<int>(sides.plan.heads.parts), out = sides.out();
  const int width = sides.width();
  const std::int64_t begin = blockIdx.x * chunk_size;
  const std::int64_t end = math::min(begin + chunk_size, sides.plan.heads.rows());
  for (int part = 0; part < parts; ++part) {
    load_weight<kWidth, kWidth>(weight.at(part), out, width, width, s.weight[part]);
  }
  const WarpTokens at;
  for (int i = threadIdx.x; i < kParts * kWarps * kWidth; i += kThreads) (&s.bias[0][0][0])[i] = 0;
  __syncthreads();
  WeightSums<kParts> sums;
#pragma unroll 1
  for (std::int64_t first = begin; first < end; first += kTokens) {
    const auto in = sides.in_rows(first, at);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      Accumulator two[2];
      load_step(in, step, two);
      Packed(two).store(s.in, at, kMmaK * step);
    }
    const auto kept = sides.kept(first, at);
#pragma unroll 1
    for (int part = 0; part < parts; ++part) {
      load_part(sides.dy_rows(part, first, at), kept, at, s.dy[part], s.bias[part][at.warp]);
    }
    __syncthreads();
    Accumulator din[kWidth / 8];
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      if (part >= parts) break;
      sums.add(part, s, at);
      add_product(at, s.dy[part], s.weight[part], din);
    }
    const auto to = sides.din_rows(first, at);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int half = 0; half < 2; ++half) to.store(half, step, quad_of(din + 2 * step, half));
    }
    __syncthreads();  // everybody is done with the tokens
  }
  float* const own = partial + std::int64_t{blockIdx.x} * parts * out * (width + 1);
  sums.store(at, parts, out, width, own);
  for (int part = 0; part < parts; ++part) {
    store_sums(s.bias[part], out, own + parts * out * width + part * out);
  }
}

/// Launches the kernel, and another that adds up what its blocks leave: dW and db side by side.
template <class Sides>
void run(const Sides& sides, std::int64_t rows, std::span<const Tensor> weights, Tensor& dparams) {
  const std::int64_t chunk = chunk_tokens(rows);
  const std::int64_t chunks = ceil_div(rows, chunk);
  const Tensor partial = Tensor::empty({chunks, dparams.numel()}, DType::f32, Device::cuda);
  constexpr int kBytes = sizeof(Shared<Sides::kParts>);
  cuda::launch(
      {"projections backward on tensor cores", static_cast<unsigned>(chunks), kThreads, kBytes},
      backward_kernel<Sides>, sides, of_each<const float>(weights), partial.data<float>(), chunk);
  columns<1, float>(1, chunks, dparams.numel(),
                    PartialEntry<float>{partial.data<float>(), chunks, dparams.numel()},
                    dparams.data<float>());
}

}  // namespace

void project_tokens_on(Cuda, const TokenPlan& plan, const Tensor& x,
                       std::span<const Tensor> weights, std::span<const Tensor> biases, Tensor& y) {
  const std::int64_t blocks = ceil_div(x.rows(), kTokens);
  cuda::launch({"project heads on tensor cores", grid_of(x.rows()), kThreads}, project_kernel, plan,
               projection_arrays<float>(x, weights, biases, y), blocks);
}

void merge_heads_on(Cuda, const TokenPlan& plan, const Tensor& x, const Tensor& a,
                    const Tensor& weight, const Tensor& bias, Tensor& y) {
  const std::int64_t blocks = ceil_div(x.rows(), kTokens);
  cuda::launch({"merge heads on tensor cores", grid_of(x.rows()), kThreads}, merge_kernel, plan,
               MergeArrays{x.data<float>(), a.data<float>(), weight.data<float>(),
                           bias.data<float>(), y.data<float>()},
               blocks);
}

void merge_heads_backward_on(Cuda, const TokenPlan& plan, const Tensor& dy, const Tensor& a,
                             const Tensor& weight, Tensor& da, Tensor& dparams) {
  run(MergeSides{plan, dy.data<float>(), a.data<float>(), da.data<float>()}, dy.rows(),
      {&weight, 1}, dparams);
}

bool project_heads_backward_has_room_on(Cuda) {
  return cuda::has_shared(sizeof(Shared<ProjectSides::kParts>));
}

void project_heads_backward_on(Cuda, const TokenPlan& plan, const Tensor& x,
                               std::span<const Tensor> weights, std::span<const Tensor> dy,
                               Tensor& dx, Tensor& dparams) {
  run(ProjectSides{plan, of_each<const float>(dy), x.data<float>(), dx.data<float>()}, x.rows(),
      weights, dparams);
}

}  // namespace skytape::tensor
