// project_heads of wide models at bf16, CUDA only: E and H D multiples of 64, D of 16. A block owns
// 128 tokens by 128 columns of all projections side by side, [P H D], and walks E by 64 channels. A
// warp's 16 tokens come from memory as fragments A (token_tiles.hpp), weights pass through shared
// memory. Blocks of the same tokens are neighbours and find x in the cache.
#include <cstdint>

#include "tensor/core/tensor.hpp"
#include "tensor/launch/cuda.hpp"
#include "tensor/projection/token_products.hpp"
#include "tensor/tokens/token_tiles.hpp"

namespace skytape::tensor {
namespace {

using namespace token_tiles;

constexpr int kGroups =
    2;  // of kWidth columns; H D is a multiple of that, so each is of one projection
constexpr int kColumns = kGroups * kWidth;

struct Weights {
  alignas(16) Number rows[kGroups][kWidth * kStride];
};

/// 64 columns of all projections: which one they are of, and their first one there.
struct Group {
  bool inside;
  std::int64_t part, column;
  __device__ Group(const HeadsPlan& plan, std::int64_t number)
      : inside(number * kWidth < plan.columns()),
        part(plan.part_of(number * kWidth)),
        column(number * kWidth - part * plan.out()) {}
};

__global__ void __launch_bounds__(kThreads, 2)
    wide_kernel(HeadsPlan plan, ProjectionArrays<float> in, std::int64_t tasks) {
  auto& weights = cuda::shared<Weights>();
  const WarpTokens at;
  const int width = static_cast<int>(plan.width);
  const std::int64_t across = ceil_div(plan.columns(), kColumns);
  for (std::int64_t task = blockIdx.x; task < tasks; task += gridDim.x) {
    const std::int64_t first = task / across * kTokens;
    const Rows<const float> x(in.x, plan.rows(), width, first, at);
    const float* weight[kGroups];  // rows of the group's columns; null beyond the last one
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      const Group own(plan, task % across * kGroups + group);
      weight[group] = own.inside ? in.weight.at(own.part) + own.column * plan.width : nullptr;
    }
    Accumulator sums[kGroups][kWidth / 8];
    for (int e = 0; e < width; e += kWidth) {
      __syncthreads();  // everybody is done with the last weights
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
        if (weight[group] == nullptr) continue;
        load_weight<kWidth, kWidth>(weight[group] + e, kWidth, kWidth, plan.width,
                                    weights.rows[group]);
      }
      Core::FragmentA a[kSteps];
      load_a(x, e / kMmaK, a);
      __syncthreads();
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
        if (weight[group] != nullptr) multiply(a, weights.rows[group], sums[group]);
      }
    }
    std::int64_t place[2];  // of the lane's rows, by head; negative beyond the last
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::int64_t row = first + at.token(half);
      place[half] = row < plan.rows() ? plan.place_of_row(row) : -1;
    }
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      const Group own(plan, task % across * kGroups + group);
      if (!own.inside) continue;
      const float* const bias = in.bias.at(own.part);
      float* const y = in.y + own.part * plan.part_size();
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        const std::int64_t c = own.column + kMmaK * step;  // 16 columns are of one head
        const Quad biases = bias == nullptr ? Quad{} : Quad::at(bias + c + 4 * at.t);
        float* const to = y + plan.place_in_part(c) + 4 * at.t;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          if (place[half] < 0) continue;
          Quad quad = quad_of(sums[group] + 2 * step, half);
#pragma unroll
          for (int i = 0; i < 4; ++i) quad.x[i] += biases.x[i];
          quad.store(to + place[half]);
        }
      }
    }
  }
}

}  // namespace

void project_wide_on(Cuda, const HeadsPlan& plan, const Tensor& x, std::span<const Tensor> weights,
                     std::span<const Tensor> biases, Tensor& y) {
  const std::int64_t rows = x.rows(), columns = y.numel() / rows;
  const std::int64_t tasks = ceil_div(rows, kTokens) * ceil_div(columns, kColumns);
  cuda::launch({"project wide heads on tensor cores", cuda::grid_for(tasks, 1), kThreads},
               wide_kernel, plan, projection_arrays<float>(x, weights, biases, y), tasks);
}

}  // namespace skytape::tensor
