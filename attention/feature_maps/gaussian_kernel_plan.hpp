// What the CPU half (tiles that stay in cache) and the GPU half (library products) of the kernel
// products are given (gaussian_kernel_cpu.cpp, gaussian_kernel.cpp).
#pragma once

#include <cstdint>

#include "attention/feature_maps/gaussian_kernel.hpp"

namespace skytape::attention {

/// Operands with batch and heads joined: G = B H.
struct KernelInputs {
  Tensor x;   // [G, N, D]
  Tensor w;   // [G, L, D]
  Tensor xx;  // [G, N]: -|x_i|^2 / 2, zeros for exponential
  Tensor ww;  // [G, L]: -|w_j|^2 / 2, zeros for exponential
  bool gaussian = true;
};

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

/// e = e c in place and its row sums; e, c: [G, N, L], sums: [G, N].
void weigh_rows_on(Cpu, const Tensor& c, Tensor& e, Tensor& sums);
void weigh_rows_on(Cuda, const Tensor& c, Tensor& e, Tensor& sums);

}  // namespace skytape::attention
