// Operands of products as numbers of bf16 in memory, CUDA only.
#include "tensor/gemm/operand.hpp"

#include "tensor/core/bf16.hpp"
#include "tensor/gemm/tensor_core.hpp"
#include "tensor/launch/columns.hpp"
#include "tensor/launch/four.hpp"

namespace skytape::tensor {
namespace {

__device__ Bf16 rounded(float x) { return std::bit_cast<Bf16>(cuda::ptx::round_bf16(x)); }

struct RoundFour {
  const float* x;
  Bf16* y;
  __device__ void operator()(std::int64_t i) const {
    const auto from = cuda::Four<float>::at(x + 4 * i);
    cuda::Four<Bf16> to;
#pragma unroll
    for (int u = 0; u < 4; ++u) to.x[u] = rounded(from.x[u]);
    to.store(y + 4 * i);
  }
};

/// Entry (i, j), rounded as it is summed: columns() asks for each one once.
struct RoundedEntry {
  const float* x;  // [rows, n]
  Bf16* y;         // [rows, n]
  std::int64_t n;
  __device__ float operator()(int, std::int64_t, std::int64_t i, std::int64_t j) const {
    const float value = x[i * n + j];
    y[i * n + j] = rounded(value);
    return value;
  }
  __device__ float operator()(int k, std::int64_t o, std::int64_t i) const {
    return (*this)(k, o, i, 0);
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
};

}  // namespace

void round_operand_on(Cuda, const Tensor& x, Tensor& y) {
  cuda::map(x.numel() / 4, RoundFour{x.data<float>(), y.data<Bf16>()});
}

void round_and_sum_on(Cuda, const Tensor& x, Tensor& y, Tensor& sums) {
  columns<1, float>(1, x.size(0), x.size(1),
                    RoundedEntry{x.data<float>(), y.data<Bf16>(), x.size(1)}, sums.data<float>());
}

void sum_operand_on(Cuda, const Tensor& y, Tensor& sums) {
  columns<1, float>(1, y.size(0), y.size(1), OperandEntry{y.data<Bf16>(), y.size(1)},
                    sums.data<float>());
}

}  // namespace skytape::tensor
