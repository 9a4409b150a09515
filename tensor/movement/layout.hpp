// Moving data without computing: transposes, head splitting, concatenation, slices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>

#include "tensor/core/tensor.hpp"

namespace skytape::tensor {

/// Swaps the last two axes (a copy).
[[nodiscard]] Tensor transpose(const Tensor& x);

/// Swaps axes 1 and 2 of a rank-4 tensor: [B, N, H, D] <-> [B, H, N, D].
[[nodiscard]] Tensor swap_middle(const Tensor& x);

/// Joins along an axis; all other sizes equal.
[[nodiscard]] Tensor concat(std::span<const Tensor> parts, int axis);
[[nodiscard]] inline Tensor concat(std::initializer_list<Tensor> parts, int axis) {
  return concat(std::span<const Tensor>(parts.begin(), parts.size()), axis);
}

/// Entries [begin, end) of an axis (a copy; a leading slice without copy is Tensor::slice).
[[nodiscard]] Tensor narrow(const Tensor& x, int axis, std::int64_t begin, std::int64_t end);
/// The adjoint of narrow: zeros of length `size` along the axis with dy at [begin, end).
[[nodiscard]] Tensor narrow_backward(const Tensor& dy, int axis, std::int64_t begin,
                                     std::int64_t size);

/// Repeats x to a larger shape by broadcasting rules.
[[nodiscard]] Tensor expand(const Tensor& x, const Shape& shape);

// The kernels of the functions above, compiled for CPU and CUDA.

struct StridedLoop;  // tensor/launch/strided.hpp

// Entries are moved as bytes of `size` 4 or 8; operand a of the loop is read, b is written.
void copy_strided_on(Cpu, const StridedLoop& loop, std::size_t size, const void* from, void* to);
void copy_strided_on(Cuda, const StridedLoop& loop, std::size_t size, const void* from, void* to);
/// from: [batch, n, m] -> to: [batch, m, n].
void transpose_on(Cpu, std::int64_t batch, std::int64_t n, std::int64_t m, std::size_t size,
                  const void* from, void* to);
void transpose_on(Cuda, std::int64_t batch, std::int64_t n, std::int64_t m, std::size_t size,
                  const void* from, void* to);

}  // namespace skytape::tensor
