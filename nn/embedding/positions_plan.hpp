// The two builds of the kernels about places (positions.kernel.cpp).
#pragma once

#include <span>

#include "tensor/core/tensor.hpp"

namespace skytape::nn {

enum class Turn { forward, back };

/// x, y: one or two of [B, H, N, D] each; angles: [at least N, D], D/2 cosines and D/2 sines of each
/// position.
void turn_on(Cpu, std::span<const Tensor> x, const Tensor& angles, Turn direction,
             std::span<Tensor> y);
void turn_on(Cuda, std::span<const Tensor> x, const Tensor& angles, Turn direction,
             std::span<Tensor> y);

/// out[b, i] = places between i and the last token of sequence b, at least 0. mask: [B, N], out:
/// i32[B, N].
void to_last_token_on(Cpu, const Tensor& mask, Tensor& out);
void to_last_token_on(Cuda, const Tensor& mask, Tensor& out);

/// out[b, i] = 1 behind the first `separator` of row b, else 0. ids, out: i32[B, N].
void token_types_on(Cpu, const Tensor& ids, std::int32_t separator, Tensor& out);
void token_types_on(Cuda, const Tensor& ids, std::int32_t separator, Tensor& out);

}  // namespace skytape::nn
