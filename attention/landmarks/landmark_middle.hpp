// The middle of an attention matrix that landmarks rebuild, and what it multiplies (Skyformer, modified
// Nystrom):
//
//   C = k(W, W)   M = (sum of C's A x A blocks) + gamma I                                       (1)
//   T = R Z R P   with Z, nearly the inverse of R M R                    scaled_inverse.hpp     (2)
//
// On a GPU at bf16 all of it is one kernel each way, a block for each matrix, where matrices are small
// enough (landmark_middle.cu); elsewhere it is made of kernel_matrix and scaled_inverse_times.
//
// Letters: B batch, H heads, A sets of landmarks, L landmarks of a set, D their width, J columns of P.
#pragma once

#include "attention/feature_maps/gaussian_kernel.hpp"
#include "attention/landmarks/scaled_inverse.hpp"

namespace skytape::attention {

/// How the middle is made.
struct MiddleConfig {
  Kernel kernel = Kernel::gaussian;
  double gamma = 0;
  std::int64_t sets = 1;  // A
  InverseConfig inverse;
};

/// What backward reads. Fused: w, p and t alone, and what the kernel keeps.
struct MiddleSaved {
  MiddleConfig config;
  Tensor w;                    // [B, H, A L, D]
  Tensor c;                    // [B, H, A L, A L], undefined where fused
  ScaledInverseSaved inverse;  // undefined where fused
  Tensor p, t;                 // [B, H, L, J]
  Tensor r, coefficient,
      argmax;     // [G, L], of scaled_inverse.hpp; [G]; i32 [G], of iterative_inverse.hpp
  Tensor planes;  // M^ and the factors of the steps, as InverseTrace's
};

/// T, [B, H, L, J], from w [B, H, A L, D] and p [B, H, L, J].
[[nodiscard]] Tensor landmark_middle(const MiddleConfig& config, const Tensor& w, const Tensor& p,
                                     MiddleSaved& saved);

struct MiddleGradients {
  Tensor dw;  // [B, H, A L, D]
  Tensor dp;  // [B, H, L, J]
};
[[nodiscard]] MiddleGradients landmark_middle_backward(const MiddleSaved& saved, const Tensor& dt);

// CUDA alone. Whether a block has room for matrices [size, size] and [size, width], and the kernels;
// tensors in `saved` and `d` are filled in place.
[[nodiscard]] bool middle_fits(std::int64_t size, std::int64_t width);
void fused_middle(MiddleSaved& saved);
void fused_middle_backward(const MiddleSaved& saved, const Tensor& dt, MiddleGradients& d);

}  // namespace skytape::attention
