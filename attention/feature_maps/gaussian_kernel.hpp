// Products with kernel matrices between many rows and a few landmarks: C_ij = kernel(x_i, w_j).
//
//   gaussian      C_ij = exp(x_i.w_j - |x_i|^2 / 2 - |w_j|^2 / 2) = exp(-|x_i - w_j|^2 / 2)
//   exponential   C_ij = exp(x_i.w_j), the kernel of softmax before normalisation
//
// The exponent is one expression, for the Gaussian never positive beyond rounding. C is recomputed
// wherever it is needed: for D = 32 that is cheaper than writing it and reading it back. On the CPU
// it is made in tiles of rows that stay in a core's cache, on the GPU in tiles against landmarks
// that stay in a block's shared memory. Where the landmarks are too many or too wide for that
// (gaussian_kernel_plan.hpp), C is one array there that lives as long as the call, with its
// gradient 2 N L per head in backward: the form to read, and the oracle of the others.
//
// Notation: B batch, H heads, N rows, L landmarks, D width of rows, P width of what C multiplies.
#pragma once

#include "autograd/tape.hpp"
#include "tensor/core/tensor.hpp"

namespace skytape::attention {

enum class Kernel { gaussian, exponential };

/// Rows of a product, [B, H, N, D or P], each times scale and its position's mask, [B, N]: a
/// method's s mu Q. Where a GPU fuses the product, they are multiplied as they are loaded.
/// Gradients are those of `rows`. A plain tensor stands for itself.
struct KernelRows {
  Tensor rows, mask;
  double scale = 1;

  KernelRows() = default;
  KernelRows(const Tensor& plain) : rows(plain) {}  // NOLINT(google-explicit-constructor)
  KernelRows(const Tensor& of, const Tensor& position_mask, double factor = 1)
      : rows(of), mask(position_mask), scale(factor) {}
  /// As a separate array.
  [[nodiscard]] Tensor multiplied() const;
};

/// C itself, for few rows: x [B, H, N, D], w [B, H, L, D] -> [B, H, N, L].
[[nodiscard]] Tensor kernel_matrix(Kernel kernel, const Tensor& x, const Tensor& w);

/// dw [B, H, L, D] of C = kernel_matrix(kernel, w, w) from C and dC [B, H, L, L], w being both
/// arguments: with E = dC C (entrywise),
///   dw = E w + E^T w - (row_sum(E) + column_sum(E)) w         (exponential: without these sums)
[[nodiscard]] Tensor kernel_matrix_backward(Kernel kernel, const Tensor& w, const Tensor& c,
                                            const Tensor& dc);

/// C y: y [B, H, L, P] -> [B, H, N, P].
[[nodiscard]] Tensor kernel_times(Kernel kernel, const KernelRows& x, const Tensor& w,
                                  const Tensor& y);

/// C^T u: u [B, H, N, P] -> [B, H, L, P].
[[nodiscard]] Tensor kernel_transposed_times(Kernel kernel, const KernelRows& x, const Tensor& w,
                                             const KernelRows& u);

/// Gradients of the bilinear form f = sum_ij C_ij u_i.y_j, which both products above lead to:
///   dC = u y^T    du = C y    dy = C^T u    E = dC C (entrywise)
///   dx = E w - row_sum(E) x    dw = E^T x - column_sum(E) w   (exponential: without these sums)
/// So kernel_times with dout = u gives dx, dw and dy; kernel_transposed_times with dout = y gives
/// dx, dw and du. du and dy are computed where asked for.
struct FormGradients {
  Tensor dx;  // [B, H, N, D]
  Tensor dw;  // [B, H, L, D]
  Tensor du;  // [B, H, N, P]
  Tensor dy;  // [B, H, L, P]
};
enum class Want { du, dy };
[[nodiscard]] FormGradients kernel_form_backward(Kernel kernel, const KernelRows& x,
                                                 const Tensor& w, const KernelRows& u,
                                                 const Tensor& y, Want want);

/// C from basic operations.
[[nodiscard]] Var kernel_reference(Kernel kernel, Var x, Var w);

}  // namespace skytape::attention
