// What the MLP's kernels receive, CUDA only.
#pragma once

#include <cstdint>

#include "tensor/launch/launch.hpp"
#include "tensor/mlp/mlp.hpp"

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

struct MlpPlan {
  std::int64_t rows = 0;  // B N, at most 2^31 - 1
  int e = 0, f = 0;       // E, F
  float epsilon = 0;      // of the norm
  RowDropout hidden, output;
};

/// Rows whose parts of the parameters' gradients are added up by one block: fixed, so that no result
/// depends on a grid.
inline constexpr std::int64_t kMlpChunk = 512;

/// Where the gradients of the parameters begin in one array of them.
struct MlpGradientPlaces {
  std::int64_t norm_weight, norm_bias, in_weight, in_bias, out_weight, out_bias, size;
  HD MlpGradientPlaces(std::int64_t e, std::int64_t f)
      : norm_weight(0),
        norm_bias(e),
        in_weight(2 * e),
        in_bias(2 * e + e * f),
        out_weight(2 * e + e * f + f),
        out_bias(2 * e + 2 * e * f + f),
        size(3 * e + 2 * e * f + f) {}
};

}  // namespace skytape::tensor
