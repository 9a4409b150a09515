// The rounding of as_multiplied(), alone and on the way to a sum.
#include "tensor/gemm/operand.hpp"
#include "tensor/core/bf16.hpp"
#include "tensor/gemm/gemm_plan.hpp"
#include "tensor/launch/narrow_rows.hpp"

namespace skytape::tensor {
namespace {

struct Round {
  const float* x;  // [n]
  float* y;        // [n]
  HD void operator()(std::int64_t i) const { y[i] = static_cast<float>(Bf16(x[i])); }
};

struct RoundedRowDot {
  const float* x;  // [rows, n]
  const float* y;  // [rows, n]
  float* sums;     // [rows]
  std::int64_t n;
  template <class Team> HD void operator()(std::int64_t row, const Team& team) const {
    const float* const a = x + row * n;
    const float* const b = y + row * n;
    const float sum = sum_over(
        team, n, [](float s, float t) { return static_cast<float>(Bf16(s)) * t; }, a, b);
    if (team.leader()) sums[row] = sum;
  }
};

}  // namespace

void round_to_bf16_on(Backend, const Tensor& x, Tensor& y) {
  map(x.numel(), Round{x.data<float>(), y.data<float>()});
}

void bf16_row_dot_on(Backend, const Tensor& x, const Tensor& y, Tensor& sums) {
  narrow_rows(x.rows(), x.cols(),
              RoundedRowDot{x.data<float>(), y.data<float>(), sums.data<float>(), x.cols()});
}

}  // namespace skytape::tensor
