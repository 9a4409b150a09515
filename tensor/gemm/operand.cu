// Operands of products as numbers of bf16 in memory, CUDA only.
#include "tensor/gemm/operand.hpp"

#include "tensor/core/bf16.hpp"
#include "tensor/launch/columns.hpp"
#include "tensor/launch/four.hpp"
#include "tensor/random/dropout_fours.hpp"
#include "tensor/random/kept_fours.hpp"
#include "tensor/random/philox.hpp"

namespace skytape::tensor {
namespace {

__device__ cuda::Four<Bf16> rounded(const cuda::Four<float>& x) {
  cuda::Four<Bf16> y;
#pragma unroll
  for (int u = 0; u < 4; ++u) y.x[u] = Bf16(x.x[u]);
  return y;
}

struct RoundFour {
  const float* x;
  Bf16* y;
  __device__ void operator()(std::int64_t i) const {
    rounded(cuda::Four<float>::at(x + 4 * i)).store_global(y + 4 * i);
  }
};

/// Entry (i, j), rounded as it is summed: columns() asks for each one once.
struct RoundedEntry {
  const float* x;  // [rows, n]
  Bf16* y;         // [rows, n]
  std::int64_t n;
  __device__ float operator()(int, std::int64_t, std::int64_t i, std::int64_t j) const {
    return store(i, j, x[i * n + j]);
  }
  __device__ float operator()(int k, std::int64_t o, std::int64_t i) const {
    return (*this)(k, o, i, 0);
  }
  [[nodiscard]] bool has_fours() const {
    return n % 4 == 0 && cuda::Four<float>::aligned(x) && cuda::Four<Bf16>::aligned(y);
  }
  __device__ cuda::Four<float> load(std::int64_t i, std::int64_t j) const {
    return cuda::Four<float>::at(x + i * n + j);
  }
  __device__ cuda::Four<float> four(std::int64_t i, std::int64_t j,
                                    const cuda::Four<float>& values) const {
    rounded(values).store_global(y + i * n + j);
    return values;
  }

  __device__ float store(std::int64_t i, std::int64_t j, float value) const {
    y[i * n + j] = Bf16(value);
    return value;
  }
};

/// Entry (i, j) behind dropout, scaled or dropped, then rounded as it is summed.
struct DroppedEntry {
  RoundedEntry rounded;
  DropoutPlan plan;
  std::int64_t rows;  // of a range

  /// The element number of entry (i, j).
  __device__ std::int64_t element(std::int64_t i, std::int64_t j) const {
    const std::uint32_t range = static_cast<std::uint32_t>(i) / static_cast<std::uint32_t>(rows);
    return plan.first + range * plan.range_stride + (i - range * rows) * rounded.n + j;
  }
  __device__ float operator()(int, std::int64_t, std::int64_t i, std::int64_t j) const {
    const std::uint32_t bits =
        philox::dropout_bits(plan.key, philox::step_of(plan.step), element(i, j));
    const float factor = bits >= plan.threshold ? static_cast<float>(plan.scale) : 0.0f;
    return rounded.store(i, j, rounded.x[i * rounded.n + j] * factor);
  }
  __device__ float operator()(int k, std::int64_t o, std::int64_t i) const {
    return (*this)(k, o, i, 0);
  }
  /// A warp has a whole chunk of one row.
  [[nodiscard]] bool has_fours() const {
    return rounded.has_fours() && rounded.n % philox::kChunk == 0 && tensor::has_fours(plan);
  }
  struct Loaded {
    cuda::Four<float> values;
    std::uint64_t step;  // read here, as no read may overtake what four() stores
  };
  __device__ Loaded load(std::int64_t i, std::int64_t j) const {
    return {rounded.load(i, j), philox::step_of(plan.step)};
  }
  __device__ cuda::Four<float> four(std::int64_t i, std::int64_t j, Loaded loaded) const {
    const std::int64_t chunk = element(i, j) / philox::kChunk;
    const unsigned kept = philox::kept_fours(plan.key, loaded.step, chunk, chunk, plan.threshold);
    philox::keep(loaded.values, kept, static_cast<float>(plan.scale));
    return rounded.four(i, j, loaded.values);
  }
};

struct OperandEntry {
  const Bf16* y;  // [rows, n]
  std::int64_t n;
  __device__ float operator()(int, std::int64_t, std::int64_t i, std::int64_t j) const {
    return static_cast<float>(y[i * n + j]);
  }
  __device__ float operator()(int k, std::int64_t o, std::int64_t i) const {
    return (*this)(k, o, i, 0);
  }
  [[nodiscard]] bool has_fours() const { return n % 4 == 0 && cuda::Four<Bf16>::aligned(y); }
  __device__ cuda::Four<Bf16> load(std::int64_t i, std::int64_t j) const {
    return cuda::Four<Bf16>::at(y + i * n + j);
  }
  __device__ cuda::Four<float> four(std::int64_t, std::int64_t,
                                    const cuda::Four<Bf16>& values) const {
    cuda::Four<float> summands;
#pragma unroll
    for (int u = 0; u < 4; ++u) summands.x[u] = static_cast<float>(values.x[u]);
    return summands;
  }
};

}  // namespace

void round_operand_on(Cuda, const Tensor& x, Tensor& y) {
  cuda::map(x.numel() / 4, RoundFour{x.data<float>(), y.data<Bf16>()});
}

void round_and_sum_on(Cuda, const Tensor& x, Tensor& y, Tensor& sums) {
  columns<1, float>(1, x.size(0), x.size(1),
                    RoundedEntry{x.data<float>(), y.data<Bf16>(), x.size(1)}, sums.data<float>());
}

void drop_round_and_sum_on(Cuda, const DropoutPlan& plan, const Tensor& x, Tensor& y,
                           Tensor& sums) {
  const std::int64_t n = x.size(1);
  columns<1, float>(1, x.size(0), n,
                    DroppedEntry{{x.data<float>(), y.data<Bf16>(), n}, plan, plan.range_size / n},
                    sums.data<float>());
}

void sum_operand_on(Cuda, const Tensor& y, Tensor& sums) {
  columns<1, float>(1, y.size(0), y.size(1), OperandEntry{y.data<Bf16>(), y.size(1)},
                    sums.data<float>());
}

}  // namespace skytape::tensor
