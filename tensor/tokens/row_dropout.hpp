// Dropout of tokens' rows, as kernels take it whose warp owns rows.
#pragma once

#include <cstdint>

#include "tensor/core/tensor.hpp"
#include "tensor/launch/launch.hpp"
#include "tensor/random/dropout.hpp"

namespace skytape::tensor {

/// Dropout of rows whose width divides a chunk of 128 element numbers: DropoutPlan, row by row.
struct RowDropout {
  std::uint64_t key = 0;
  const std::int32_t* step = nullptr;  // null: step 0
  std::uint32_t threshold = 0;
  float scale = 1;               // of kept entries
  std::int64_t width = 0;        // entries of a row
  std::int64_t first = 0;        // number of the first row in memory
  std::int64_t stride = 0;       // numbers from a range's first row to that of the next one
  std::uint32_t range_rows = 1;  // rows of a range

  HD std::int64_t number(std::int64_t row) const {
    const std::uint32_t range = static_cast<std::uint32_t>(row) / range_rows;
    return first + range * stride + (row - std::int64_t{range} * range_rows);
  }
};

/// Returns the dropout of an array [B, N, width] on the device of x [B, N, E]. Throws, naming `op`,
/// where rate or step do not fit.
[[nodiscard]] RowDropout row_dropout(const char* op, const Tensor& x, std::int64_t width,
                                     const Dropout& options);

}  // namespace skytape::tensor
