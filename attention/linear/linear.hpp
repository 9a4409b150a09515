// Linear attention with features that are computed entry by entry: the weight of query i for key j
// is a scalar product, so the sum over keys is formed once for all queries,
//     A = phi(Q)    C = m phi(K)    T = [V, 1]^T C                                             (1)
//     S = A T^T     z_i = max(S_iD + added, least)      O_i = S_i[:D] / z_i                    (2)
// m is the mask as a column that multiplies rows. O_i is zero where z_i is.
//
// The features of position i are, with f the activation,
//     phi(x) = f(x)                                        R = D                               (3)
//     phi(x) = [f(x) cos(turn i), f(x) sin(turn i)]        R = 2 D, if turn is not zero
//
// On the CPU features are made in tiles of rows that stay in a core's cache, in forward and again
// in backward; on the GPU they are arrays that live as long as the call.
//
// Notation: B batch, H heads, N queries and keys, D head width, R features, P = D + 1.
#pragma once

#include <cstdint>

#include "attention/call.hpp"

namespace skytape::attention {

enum class Activation { elu, relu };  // elu: elu(x) + 1, the exponential function up to x = 0

struct LinearOptions {
  Activation activation = Activation::elu;
  double turn = 0;              // radians per position
  double added = 0, least = 0;  // of (2), not negative
};

struct LinearForward {
  Tensor out;   // O, [B, H, N, D]
  Tensor sums;  // T, [B, H, P, R]
  Tensor z;     // [B, H, N]
};
/// q, k, v: [B, H, N, D]; mask: [B, N].
[[nodiscard]] LinearForward linear_forward(const Tensor& q, const Tensor& k, const Tensor& v,
                                           const Tensor& mask, const LinearOptions& options);

struct LinearBackward {
  Tensor dq, dk, dv;  // [B, H, N, D]
};
/// Gradients from dout [B, H, N, D]. At a kink of an activation its derivative is that of the left
/// side; a z that was raised to `least` is a constant.
[[nodiscard]] LinearBackward linear_backward(const Tensor& q, const Tensor& k, const Tensor& v,
                                             const Tensor& mask, const LinearOptions& options,
                                             const LinearForward& saved, const Tensor& dout);

/// A method's call: linear_forward, and linear_backward once its gradients are asked for.
[[nodiscard]] Result linear_attention(const Inputs& in, const LinearOptions& options);

}  // namespace skytape::attention
