// The middle of an attention matrix that landmarks rebuild, and what it multiplies (Skyformer,
// modified Nystrom):
//
//   C = k(W, W)   M = (sum of C's A x A blocks) + gamma I                                       (1)
//   T = R Z R P   with Z, nearly the inverse of R M R                    scaled_inverse.hpp     (2)
//
// Z does not need P, and dP, which other gradients wait for, does not need dZ. So forward and
// backward are two calls each, and the slow one can run in parallel with the rest of a method. On a
// GPU at bf16 each is one kernel, a block for each matrix, where matrices are small enough
// (landmark_middle.cu). Elsewhere, on a CPU always, the call that gives T or dP does it all, by
// kernel_matrix and scaled_inverse_times: begin_landmark_middle keeps w, and
// end_landmark_middle_backward finds dW computed.
//
// Notation: B batch, H heads, A sets of landmarks, L landmarks of a set, D their width, J columns
// of P.
#pragma once

#include "attention/feature_maps/gaussian_kernel.hpp"
#include "attention/landmarks/scaled_inverse.hpp"

namespace skytape::attention {

/// The settings of the middle.
struct MiddleConfig {
  Kernel kernel = Kernel::gaussian;
  double gamma = 0;
  std::int64_t sets = 1;  // A
  InverseConfig inverse;
};

/// The tensors that backward reads. Fused: w, p and t alone, and those that the kernels keep.
struct MiddleSaved {
  MiddleConfig config;
  std::int64_t columns = 0;    // J
  Tensor w;                    // [B, H, A L, D]
  Tensor c;                    // [B, H, A L, A L], undefined where fused
  ScaledInverseSaved inverse;  // undefined where fused
  Tensor p, t;                 // [B, H, L, J], undefined where not fused
  Tensor r, coefficient,
      argmax;     // [G, L], of scaled_inverse.hpp; [G]; i32 [G], of iterative_inverse.hpp
  Tensor planes;  // M^ and the factors of the steps, as InverseTrace's
};

/// Computes all that T needs of w [B, H, A L, D] alone: Z. `columns`: the width J of the coming P.
void begin_landmark_middle(const MiddleConfig& config, const Tensor& w, std::int64_t columns,
                           MiddleSaved& saved);
/// T, [B, H, L, J], from p [B, H, L, J].
[[nodiscard]] Tensor landmark_middle(const Tensor& p, MiddleSaved& saved);

struct MiddleGradients {
  Tensor dw;  // [B, H, A L, D]; undefined before end_landmark_middle_backward where fused
  Tensor dp;  // [B, H, L, J]
};
/// Returns dP; where not fused, dW as well.
[[nodiscard]] MiddleGradients landmark_middle_backward(const MiddleSaved& saved, const Tensor& dt);
/// Computes dW, if it is not there.
void end_landmark_middle_backward(const MiddleSaved& saved, const Tensor& dt, MiddleGradients& d);

// CUDA alone. Whether a block has room for matrices [size, size] and [size, width], and the kernels
// of the calls above in their order; tensors in `saved`, dp and dw are filled in place.
[[nodiscard]] bool middle_fits(std::int64_t size, std::int64_t width);
void fused_inverse(MiddleSaved& saved);
void fused_middle(MiddleSaved& saved);
void fused_dp(const MiddleSaved& saved, const Tensor& dt, Tensor& dp);
void fused_dw(const MiddleSaved& saved, const Tensor& dt, Tensor& dw);

}  // namespace skytape::attention
