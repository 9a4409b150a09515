// Pixels as numbers: each sees the intensities of the square around it.
//
// A pixel's own id says little, and 256 vectors would have to learn which intensities are alike.
// The square around it shows edges, if brightness does not drown them: in natural pictures a wave
// of frequency f has an amplitude of about 1 / f (Field 1987). So a square is written in the
// discrete cosine transform's waves, each times its frequency, which makes all about equally large.
//
// Notation: B batch, N positions of this batch, T pixels of a square.
#pragma once

#include <cstdint>

#include "autograd/parameter.hpp"
#include "tensor/core/tensor.hpp"

namespace skytape::nn {

/// Intensities of the square of side x side pixels around each pixel, row by row: [B, N, side²].
/// ids: i32[B, N], rows of a picture one after the other, `columns` in each; 0 is black (-1), 255
/// white (1). What lies outside the picture, and ids that stand for no intensity, are 0. `side` is
/// odd.
[[nodiscard]] Tensor patch_intensities(const Tensor& ids, std::int64_t columns, std::int64_t side,
                                       DType dtype);

/// [T, T]: column j holds wave j of the two-dimensional cosine transform of a square, times its
/// frequency, the distance of its indices from (0, 0); the constant wave gives twice the mean.
[[nodiscard]] Initialiser patch_waves();

// The two builds of the kernel of squares of pixels (patches.kernel.cpp).

/// intensities[b, i, ·]: the square around pixel i. ids: i32[B, N], intensities: [B, N, side²].
void patch_intensities_on(Cpu, const Tensor& ids, std::int64_t columns, std::int64_t side,
                          Tensor& intensities);
void patch_intensities_on(Cuda, const Tensor& ids, std::int64_t columns, std::int64_t side,
                          Tensor& intensities);

}  // namespace skytape::nn
