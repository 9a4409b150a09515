// The plan that the CPU half (tiles that stay in cache) and the GPU half of the kernel products are
// given (gaussian_kernel_cpu.cpp, gaussian_kernel.cu), and the rule which calls the GPU fuses.
#pragma once

#include <cstdint>

#include "attention/feature_maps/gaussian_kernel.hpp"

namespace skytape::attention {

/// The factors that rows are multiplied by where they are loaded.
struct FactorsInMemory {
  Tensor mask;  // [B, N]; undefined: rows are as they are
  double scale = 1;
};

/// Operands with batch and heads joined: G = B H.
struct KernelInputs {
  Tensor x;   // [G, N, D]
  Tensor w;   // [G, L, D]
  Tensor xx;  // [G, N]: -|x_i|^2 / 2, zeros for exponential
  Tensor ww;  // [G, L]: -|w_j|^2 / 2, zeros for exponential
  bool gaussian = true;
  bool fused = false;                    // then x and w are as given, and xx and ww undefined
  FactorsInMemory of_x = {}, of_u = {};  // fused: of x's rows and of u's
  std::int64_t sharing = 1;              // heads of an example, which share a mask
};

/// Largest sizes whose landmarks a block of the GPU holds while the rows go by.
inline constexpr std::int64_t kFusedLandmarks = 128, kFusedWidth = 64, kFusedFactor = 80;

/// Returns whether a GPU fuses products of C, of x [G, N, D] and w [G, L, D], with factors of that
/// width, if it has room (fused_has_room_on). Every other call (f64, more landmarks, wider heads, C
/// itself) has C as one array.
[[nodiscard]] inline bool fits_fused(const Tensor& x, const Tensor& w, std::int64_t factor) {
  const std::int64_t landmarks = w.size(1), width = x.size(2);
  return x.dtype() == DType::f32 && x.numel() > 0 && landmarks > 0 && factor > 0 &&
         landmarks <= kFusedLandmarks && width <= kFusedWidth && factor <= kFusedFactor;
}

/// Returns whether blocks of this device have the shared memory of a fused product of rows and
/// factors so wide.
[[nodiscard]] bool fused_has_room_on(Cuda, std::int64_t width, std::int64_t factor);

/// out = C y, [G, N, P].
void kernel_times_on(Cpu, const KernelInputs& in, const Tensor& y, Tensor& out);
void kernel_times_on(Cuda, const KernelInputs& in, const Tensor& y, Tensor& out);

/// out = C^T u, [G, L, P].
void kernel_transposed_times_on(Cpu, const KernelInputs& in, const Tensor& u, Tensor& out);
void kernel_transposed_times_on(Cuda, const KernelInputs& in, const Tensor& u, Tensor& out);

/// Fills dx and whichever of dw, du and dy is defined.
void kernel_form_backward_on(Cpu, const KernelInputs& in, const Tensor& u, const Tensor& y,
                             FormGradients& d);
void kernel_form_backward_on(Cuda, const KernelInputs& in, const Tensor& u, const Tensor& y,
                             FormGradients& d);

/// The second way, on any device: with C as one array [G, N, L].
void kernel_times_whole(const KernelInputs& in, const Tensor& y, Tensor& out);
void kernel_transposed_times_whole(const KernelInputs& in, const Tensor& u, Tensor& out);
void kernel_form_backward_whole(const KernelInputs& in, const Tensor& u, const Tensor& y,
                                FormGradients& d);

/// c = exp(c + xx + ww) in place, c: [G, N, L] holding the products x_i.w_j.
void exponentiate_on(Cpu, const KernelInputs& in, Tensor& c);
void exponentiate_on(Cuda, const KernelInputs& in, Tensor& c);

/// -|x_i|^2 / 2 of every row; x: [G, n, D] -> [G, n].
void half_squares_on(Cpu, const Tensor& x, Tensor& xx);
void half_squares_on(Cuda, const Tensor& x, Tensor& xx);

/// e = dc c and its row sums; c, dc, e: [G, N, L], of which e may be dc; sums: [G, N].
void weigh_rows_on(Cpu, const Tensor& c, const Tensor& dc, Tensor& e, Tensor& sums);
void weigh_rows_on(Cuda, const Tensor& c, const Tensor& dc, Tensor& e, Tensor& sums);

/// dx -= sums x, row by row; dx, x: [G, n, D], sums: [G, n], all of them added up.
void subtract_weighted_on(Cpu, Tensor& dx, const Tensor& x, const Tensor& sums, const Tensor& more);
void subtract_weighted_on(Cuda, Tensor& dx, const Tensor& x, const Tensor& sums,
                          const Tensor& more);

}  // namespace skytape::attention
