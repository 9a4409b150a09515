// Positive random features of the exponential kernel, Performer's building block: with rows w_j of
// W,
//   e(x)_j = exp(w_j.x - |x|^2 / 2 - c)    so that for c = 0 the mean of e(x).e(y) / R is exp(x.y).
// The stabiliser c keeps exponents from growing; each row has its own, or many rows share one.
//
// Notation: B batch, H heads, N rows, D width, R random features, P width of what features
// multiply.
#pragma once

#include <cstdint>

#include "attention/feature_maps/gaussian_kernel.hpp"
#include "tensor/core/tensor.hpp"
#include "tensor/random/random.hpp"

namespace skytape::attention {

/// W: blocks of D orthogonal rows (the last one cut), whose lengths are those of independent normal
/// vectors. [R, D], drawn on the device.
[[nodiscard]] Tensor orthogonal_features(std::int64_t count, std::int64_t width,
                                         const Random& random, DType dtype, Device device);

/// The sequence with its step divided by `interval` and rounded down: draws change every so many
/// steps.
[[nodiscard]] Random slowed(const Random& random, std::int64_t interval);

/// The largest w_j.x_i of each row and the first j that has it.
struct FeatureMaxima {
  Tensor value;    // [B, H, N]
  Tensor feature;  // i32[B, H, N]
};
/// Its gradient: dx[b, h, i, :] += dvalue[b, h, i] w[feature[b, h, i], :], in place.
void add_maxima_backward(const Tensor& w, const FeatureMaxima& maxima, const Tensor& dvalue,
                         Tensor& dx);

/// The definition of a matrix E of features; E itself is made in tiles where it is used.
struct RandomFeatures {
  Tensor x;  // [B, H, N, D]
  Tensor w;  // [R, D]
  Tensor c;  // [B, H, N]
};

/// E y with each row's largest product as its stabiliser: y [B, H, R, P] -> [B, H, N, P]. e.c is
/// not read: it is what `maxima` gets.
[[nodiscard]] Tensor stabilised_features_times(const RandomFeatures& e, const Tensor& y,
                                               FeatureMaxima& maxima);
/// E^T u with one stabiliser, the largest product of `scope` heads (a divisor of B H), for all
/// their rows: u [B, H, N, P] -> [B, H, R, P]. e.c is not read; `maxima` gets those of single rows.
[[nodiscard]] Tensor stabilised_features_transposed_times(const RandomFeatures& e, const Tensor& u,
                                                          std::int64_t scope,
                                                          FeatureMaxima& maxima);
/// Gradients of the bilinear form sum_ij E_ij u_i.y_j (see gaussian_kernel.hpp), c held constant:
/// dx and, as wanted, du = E y or dy = E^T u; dw stays undefined.
[[nodiscard]] FormGradients features_backward(const RandomFeatures& e, const Tensor& u,
                                              const Tensor& y, Want want);

}  // namespace skytape::attention
