// Sizes of a gather or scatter, and the kernels that take them. A CPU scatters within gather.cpp.
#pragma once

#include <cstdint>

#include "tensor/core/tensor.hpp"

namespace skytape::tensor {

/// x: [groups, rows, width], y: [groups, picks, width], index: [groups / sharing, picks].
struct GatherPlan {
  std::int64_t groups = 0;
  std::int64_t rows = 0;     // n
  std::int64_t picks = 0;    // d
  std::int64_t width = 0;    // p
  std::int64_t sharing = 1;  // consecutive groups that use the same list
};

void gather_rows_on(Cpu, const GatherPlan& plan, const Tensor& x, const Tensor& index, Tensor& y);
void gather_rows_on(Cuda, const GatherPlan& plan, const Tensor& x, const Tensor& index, Tensor& y);
void scatter_add_rows_on(Cuda, const GatherPlan& plan, Tensor& x, const Tensor& index,
                         const Tensor& y);
void embedding_backward_on(Cuda, const GatherPlan& plan, const Tensor& dy, const Tensor& ids,
                           Tensor& dtable);

}  // namespace skytape::tensor
