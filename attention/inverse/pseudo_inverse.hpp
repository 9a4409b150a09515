// Exact pseudo-inverse of symmetric matrices, for studies on the CPU.
#pragma once

#include "tensor/core/tensor.hpp"

namespace skytape::attention {

/// Moore-Penrose inverse of symmetric matrices [..., L, L], by eigendecomposition in f64 whatever
/// the dtype; eigenvalues below 1e-10 times the largest magnitude count as zero. CPU only.
[[nodiscard]] Tensor symmetric_pseudo_inverse(const Tensor& m);

}  // namespace skytape::attention
