// The two builds of the windows' kernels (unfold.kernel.cpp).
#pragma once

#include "tensor/core/tensor.hpp"

namespace skytape::nn {

struct UnfoldPlan {
  std::int64_t rows, columns;          // of the picture; rows columns = N
  std::int64_t out_rows, out_columns;  // windows below and beside one another; their product is M
  std::int64_t width;                  // E
  std::int64_t side, stride;
};

/// x: [B, N, E] -> y: [B, M, side² E].
void unfold_on(Cpu, const UnfoldPlan& plan, const Tensor& x, Tensor& y);
void unfold_on(Cuda, const UnfoldPlan& plan, const Tensor& x, Tensor& y);

/// Its adjoint. dy: [B, M, side² E] -> dx: [B, N, E].
void fold_on(Cpu, const UnfoldPlan& plan, const Tensor& dy, Tensor& dx);
void fold_on(Cuda, const UnfoldPlan& plan, const Tensor& dy, Tensor& dx);

}  // namespace skytape::nn
