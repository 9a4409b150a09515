// The two builds of the kernels behind elementwise.cpp.
#pragma once

#include "tensor/kernels/elementwise.hpp"
#include "tensor/launch/strided.hpp"

namespace skytape::tensor {

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
