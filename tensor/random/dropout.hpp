// Dropout whose mask is a function of (key, step, element): regenerated in backward, never stored.
#pragma once

#include "tensor/core/tensor.hpp"
#include "tensor/random/random.hpp"

namespace skytape {

/// The elements to drop. The element number of entry (b, i, e) of a [B, N, E] tensor is
/// ((first_example + b) * nominal_length + i) * E + e, so that trimming a batch, or splitting it
/// over accumulation steps, changes no mask.
struct Dropout {
  double rate = 0;  // share dropped, in [0, 1); 0: the op is the identity and draws nothing
  Random random;
  std::int64_t first_example = 0;
  std::int64_t nominal_length = 0;  // 0: the tensor's own N
};

namespace tensor {

/// Elements that share 16 Philox counters (philox.hpp).
inline constexpr int kDropoutChunk = 128;

/// 16 bits decide about an element: it is dropped when they are < the threshold, rate * 65536
/// rounded, at most 65535. Throws, naming `op`, unless 0 <= rate < 1.
[[nodiscard]] std::uint32_t dropout_threshold(const char* op, double rate);
/// Factor of kept elements: 1 / (1 - threshold / 65536).
[[nodiscard]] double dropout_scale(std::uint32_t threshold);

/// y = x keep / (1 - rate); also its own backward. x: [B, N, E]. Returns x itself, which is not
/// copied, where nothing is dropped.
[[nodiscard]] Tensor dropout(const Tensor& x, const Dropout& options);

/// residual + dropout(x + bias), one pass. residual, x: [B, N, E], bias: [E] or undefined, which adds
/// nothing.
[[nodiscard]] Tensor add_dropout(const Tensor& residual, const Tensor& x, const Tensor& bias,
                                 const Dropout& options);

/// y = dropout(gelu(x + bias)) and its backward (dx; dbias is its column sum). x: [B, N, F], bias:
/// [F]. Where products gave x as bf16 and read the result (gemm/operand.hpp), x, dy and what is
/// returned are of bf16, the bias of f32, in which all is computed.
[[nodiscard]] Tensor bias_gelu_dropout(const Tensor& x, const Tensor& bias, const Dropout& options);
[[nodiscard]] Tensor bias_gelu_dropout_backward(const Tensor& x, const Tensor& bias,
                                                const Dropout& options, const Tensor& dy);

/// The factors keep / (1 - rate), for tests and references. shape: [B, N, E].
[[nodiscard]] Tensor dropout_factors(const Shape& shape, const Dropout& options, DType dtype,
                                     Device device);

}  // namespace tensor
}  // namespace skytape
