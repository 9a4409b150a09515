// The two builds of the kernels behind reduce.cpp. Maxima down columns are a backend pair: a CPU's
// thread walks along rows, with vector instructions; on a GPU a thread takes a column, and several
// threads share a long one.
#pragma once

#include <cstdint>
#include <limits>

#include "tensor/core/device.hpp"
#include "tensor/core/tensor.hpp"
#include "tensor/kernels/axis.hpp"
#include "tensor/launch/math.hpp"

namespace skytape::tensor {

/// Returns the key that entries are compared by in a maximum: NaN counts as +inf, so that it shows.
template <class T> HD inline T max_key(T x) {
  return x == x ? x : std::numeric_limits<T>::infinity();
}

/// x: [outer, n, inner] -> y: [outer, inner].
void sum_on(Cpu, const AxisView& view, const Tensor& x, Tensor& y);
void sum_on(Cuda, const AxisView& view, const Tensor& x, Tensor& y);

/// x: [outer, n, inner] -> y, position: [outer, inner], n > 0; of rows: inner = 1.
void max_of_rows_on(Cpu, const AxisView& view, const Tensor& x, Tensor& y, Tensor& position);
void max_of_rows_on(Cuda, const AxisView& view, const Tensor& x, Tensor& y, Tensor& position);
void max_of_columns_on(Cpu, const AxisView& view, const Tensor& x, Tensor& y, Tensor& position);
void max_of_columns_on(Cuda, const AxisView& view, const Tensor& x, Tensor& y, Tensor& position);

/// dx: [outer, n, inner], zeros at the start.
void max_backward_on(Cpu, const AxisView& view, const Tensor& dy, const Tensor& position,
                     Tensor& dx);
void max_backward_on(Cuda, const AxisView& view, const Tensor& dy, const Tensor& position,
                     Tensor& dx);

void row_dot_on(Cpu, const Tensor& a, const Tensor& b, Tensor& y);
void row_dot_on(Cuda, const Tensor& a, const Tensor& b, Tensor& y);

}  // namespace skytape::tensor
