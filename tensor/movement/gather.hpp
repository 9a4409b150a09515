// Picking rows by index, and adding rows back at an index. Scatter-adds are deterministic.
#pragma once

#include <cstdint>

#include "tensor/core/tensor.hpp"

namespace skytape::tensor {

/// Throws unless x has rows of numbers and index is i32 on its device. `op` is for the message.
void require_index(const char* op, const Tensor& x, const Tensor& index);
/// Throws for an index outside [0, n), on the CPU; a GPU is not waited for.
void require_in_range(const char* op, const Tensor& index, std::int64_t n);

/// y[g, i, :] = x[g, index[g', i], :]; x: [..., n, p], index: i32[..., d] whose leading axes are
/// the first of x's. Fewer mean that one list serves all remaining axes: x [B, H, n, p] takes index
/// [B, H, d] or [B, d] or [d]. Returns [..., d, p]. An index outside [0, n) is an error on the CPU.
[[nodiscard]] Tensor gather_rows(const Tensor& x, const Tensor& index);

/// Adds y's rows into x: x[g, index[g', i], :] += y[g, i, :]; shapes as gather_rows. In place.
/// Repeated indices accumulate, in the order of i.
void scatter_add_rows(Tensor& x, const Tensor& index, const Tensor& y);

// Sizes of a gather or scatter, and the kernels that take them. A CPU scatters within gather.cpp.

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

}  // namespace skytape::tensor
