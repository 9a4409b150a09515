// Position information of a token: a vector added to its embedding, or a rotation of its queries
// and keys; and the text of a pair that it is in.
//
// Notation: B batch, H heads, N positions of this batch, D head width, E width.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "autograd/parameter.hpp"
#include "autograd/tape.hpp"
#include "tensor/core/tensor.hpp"

namespace skytape::nn {

/// The deviation of a token's and a position's first vector: N(0, 0.02²), as in the papers' code.
inline constexpr double kEmbeddingDeviation = 0.02;

/// Rows of a buffer [N, E]: sin(n / 10000^(2j/E)) and cos of it, scaled to the deviation that
/// learned positions start with: at their own height they would drown the tokens.
[[nodiscard]] Initialiser sinusoidal_positions();

/// Rows of a buffer [N, D]: for position n the cosines of n / base^(2j/D), j < D/2, then the sines.
[[nodiscard]] Initialiser rotary_angles(double base);

/// Turns entries j and j + D/2 of row n, as a point of the plane, by the angle of (n, j): products
/// of a turned query and a turned key then depend on their distance alone. x: [B, H, N, D], angles:
/// [at least N, D] of rotary_angles.
[[nodiscard]] Var rotary(Var x, const Tensor& angles);
/// Turns queries and keys of one shape in one op.
[[nodiscard]] std::array<Var, 2> rotary_pair(Var q, Var k, const Tensor& angles);

/// Returns how many places before its sequence's last token each position stands; 0 there and
/// behind it.
/// mask: [B, N], 1 = token, 0 = padding -> i32[B, N].
[[nodiscard]] Tensor to_last_token(const Tensor& mask);

/// BERT's token types of pairs in one sequence (Devlin et al. 2019, sec. 3): 0 up to the first
/// `separator` of a row, which is the end of the first text, and 1 behind it; 0 where there is
/// none. ids: i32[B, N] -> i32[B, N].
[[nodiscard]] Tensor token_types(const Tensor& ids, std::int32_t separator);

// The two builds of the kernels about places (positions.kernel.cpp).

enum class Turn { forward, back };

/// x, y: one or two of [B, H, N, D] each; angles: [at least N, D], D/2 cosines and D/2 sines of
/// each position.
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
