// Entry checks shared by the tensor functions.
#pragma once

#include "tensor/core/tensor.hpp"

namespace skytape::tensor {

/// Throws, naming `op`, unless x is defined and floating-point.
inline void require_float(const char* op, const Tensor& x) {
  ENSURE(x.defined() && x.dtype() != DType::i32, op, ": expected an f32 or f64 tensor, got ", x);
}

}  // namespace skytape::tensor
