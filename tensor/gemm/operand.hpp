// Operands as matrix products read them.
#pragma once

#include "tensor/core/tensor.hpp"
#include "tensor/random/dropout_plan.hpp"

namespace skytape::tensor {

/// Returns the values that products of x compute with: x rounded to bf16 where that is the device's
/// precision and x is f32, else x itself. Code that subtracts a product from a norm takes both of
/// these: with norms of the unrounded rows |x|^2 - 2 x.x + |x|^2 is not zero.
[[nodiscard]] Tensor as_multiplied(const Tensor& x);
/// Row sums of as_multiplied(x) times y, entrywise, in one pass: [..., n] -> [...].
[[nodiscard]] Tensor multiplied_row_dot(const Tensor& x, const Tensor& y);

// Large products at bf16 on a GPU read numbers that lie in memory as bf16 at twice the rate of f32
// ones (measured on an H100: 798 and 391 TFLOP/s). Forward and backward read each operand twice.

/// Returns the type that the operands of x Wᵀ and of its gradients have in memory, for x [..., in]
/// and W [out, in]: bf16 on CUDA at that precision, for f32 with at least 1,024 rows and with in
/// and out at least 256 and multiples of 8. Elsewhere it is the weight's own.
[[nodiscard]] DType operand_type(const Tensor& x, const Tensor& weight);
/// Returns x in that type: x itself, or its numbers rounded to bf16.
[[nodiscard]] Tensor as_operand(const Tensor& x, DType type);

struct OperandAndSums {
  Tensor operand;  // [rows, n]
  Tensor sums;     // [n], of the columns of x as it was
};
/// Returns x [rows, n] in that type and the sums of its columns. One pass where it is rounded.
[[nodiscard]] OperandAndSums operand_and_sums(const Tensor& x, DType type);
/// Returns dropout(x), x [B, N, n], as an operand [B N, n] and the sums of its columns. Throws unless
/// x has three axes.
[[nodiscard]] OperandAndSums operand_and_sums(const Tensor& x, DType type, const Dropout& dropout);
/// Returns the sums of an operand's columns, [rows, n] -> [n], in the type that products have.
[[nodiscard]] Tensor operand_sums(const Tensor& operand);

/// Returns residual + dropout(x Wᵀ + bias). x: [..., in], an operand; weight: [out, in], bias:
/// [out], residual: [B, N, out].
[[nodiscard]] Tensor add_linear(const Tensor& residual, const Tensor& x, const Tensor& weight,
                                const Tensor& bias, const Dropout& dropout);

// CUDA only (operand.cu). x: f32 with a multiple of 4 numbers, y: bf16 of its shape, sums: [n].
void round_operand_on(Cuda, const Tensor& x, Tensor& y);
void round_and_sum_on(Cuda, const Tensor& x, Tensor& y, Tensor& sums);
void drop_round_and_sum_on(Cuda, const DropoutPlan& plan, const Tensor& x, Tensor& y, Tensor& sums);
void sum_operand_on(Cuda, const Tensor& y, Tensor& sums);

}  // namespace skytape::tensor
