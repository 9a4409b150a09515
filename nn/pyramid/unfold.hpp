// The windows of a picture as rows (im2col): a convolution of all channels is then one product.
//
// Notation: B batch, N places of the picture, M windows, E width.
#pragma once

#include <cstdint>

#include "autograd/tape.hpp"
#include "tensor/core/tensor.hpp"

namespace skytape::nn {

/// Windows of side x side places around every stride-th place of a picture's rows and columns.
struct Windows {
  std::int64_t columns = 1;  // places in a row of the picture; N is a multiple
  std::int64_t side = 3;     // odd
  std::int64_t stride = 1;

  /// Windows along a side of the picture that has so many places.
  [[nodiscard]] std::int64_t along(std::int64_t places) const { return ceil_div(places, stride); }
};

/// y[b, m, (r side + c) E + e]: channel e of place (r, c) of window m, 0 outside the picture.
/// Window m = i along(columns) + j lies around place (i stride, j stride). x: [B, N, E] ->
/// [B, M, side² E].
[[nodiscard]] Var unfold(Var x, const Windows& windows);

// The two builds of the windows' kernels (unfold.kernel.cpp).

struct UnfoldPlan {
  std::int64_t rows, columns;          // of the picture; rows columns = N
  std::int64_t out_rows, out_columns;  // windows vertically and horizontally; their product is M
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
