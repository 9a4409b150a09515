// Elementwise kernels: fill, unary functions, binary operations with broadcasting.
#pragma once

#include <span>

#include "tensor/core/tensor.hpp"

namespace skytape::tensor {

void fill(Tensor& x, double value);

/// y = f(x) entry by entry, one of the functions in elementwise.def.
enum class Unary {
#define UNARY(name, value, derivative) name,
#include "tensor/kernels/elementwise.def"
};
[[nodiscard]] Tensor unary(Unary f, const Tensor& x);
/// dx = dy f'(x).
[[nodiscard]] Tensor unary_backward(Unary f, const Tensor& x, const Tensor& dy);

/// Entrywise with broadcasting: axes are aligned at the end, an axis of size 1 repeats.
enum class Binary {
#define BINARY(name, value) name,
#include "tensor/kernels/elementwise.def"
};
[[nodiscard]] Tensor binary(Binary f, const Tensor& a, const Tensor& b);
[[nodiscard]] inline Tensor add(const Tensor& a, const Tensor& b) {
  return binary(Binary::add, a, b);
}
[[nodiscard]] inline Tensor subtract(const Tensor& a, const Tensor& b) {
  return binary(Binary::subtract, a, b);
}
[[nodiscard]] inline Tensor multiply(const Tensor& a, const Tensor& b) {
  return binary(Binary::multiply, a, b);
}
[[nodiscard]] inline Tensor divide(const Tensor& a, const Tensor& b) {
  return binary(Binary::divide, a, b);
}
/// Shape of a broadcast result. Throws, naming `op`, when the shapes do not fit.
[[nodiscard]] Shape broadcast_shape(const char* op, const Shape& a, const Shape& b);

/// scale * x + shift.
[[nodiscard]] Tensor affine(const Tensor& x, double scale, double shift = 0);

/// In place, for the tape's accumulation and the optimiser: y += scale * x (same shape).
void accumulate(Tensor& y, const Tensor& x, double scale = 1);

/// target += source (same shape).
struct Addition {
  Tensor target, source;
};
/// accumulate() for each, in few launches. No two targets overlap.
void accumulate_all(std::span<Addition> additions);

/// x with row r multiplied by scale * mask[r]; x: [B, H, N, D], mask: [B, N] broadcast over heads
/// and columns: the s mu Q that the methods' derivations begin with.
[[nodiscard]] Tensor mask_rows(const Tensor& x, const Tensor& mask, double scale = 1);

/// True when every entry is finite. Reads back from the device.
[[nodiscard]] bool all_finite(const Tensor& x);

// The two builds of the kernels behind these (elementwise.kernel.cpp).

struct StridedLoop;  // tensor/launch/strided.hpp

void fill_on(Cpu, Tensor& x, double value);
void fill_on(Cuda, Tensor& x, double value);
void unary_on(Cpu, Unary f, const Tensor& x, Tensor& y);
void unary_on(Cuda, Unary f, const Tensor& x, Tensor& y);
void unary_backward_on(Cpu, Unary f, const Tensor& x, const Tensor& dy, Tensor& dx);
void unary_backward_on(Cuda, Unary f, const Tensor& x, const Tensor& dy, Tensor& dx);
void binary_on(Cpu, Binary f, const StridedLoop& loop, const Tensor& a, const Tensor& b, Tensor& y);
void binary_on(Cuda, Binary f, const StridedLoop& loop, const Tensor& a, const Tensor& b,
               Tensor& y);
void affine_on(Cpu, const Tensor& x, double scale, double shift, Tensor& y);
void affine_on(Cuda, const Tensor& x, double scale, double shift, Tensor& y);
void accumulate_on(Cpu, Tensor& y, const Tensor& x, double scale);
void accumulate_on(Cuda, Tensor& y, const Tensor& x, double scale);
void accumulate_all_on(Cpu, std::span<Addition> additions);
void accumulate_all_on(Cuda, std::span<Addition> additions);
void mask_rows_on(Cpu, const Tensor& x, const Tensor& mask, double scale, Tensor& y);
void mask_rows_on(Cuda, const Tensor& x, const Tensor& mask, double scale, Tensor& y);
Tensor non_finite_on(Cpu, const Tensor& x);
Tensor non_finite_on(Cuda, const Tensor& x);

}  // namespace skytape::tensor
