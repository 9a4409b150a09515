// NumPy .npy files, read only: version 1.0 to 3.0, C order, little-endian f32, f64 and i64.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "tensor/core/tensor.hpp"

namespace skytape {

/// An array as the file has it: one of the two vectors is filled, row-major.
struct NpyArray {
  std::vector<std::int64_t> shape;
  bool integer = false;
  std::vector<double> reals;  // f32 is widened
  std::vector<std::int64_t> integers;

  /// On the CPU in `dtype`. Error if an axis count or a number does not fit.
  [[nodiscard]] Tensor tensor(DType dtype) const;
};

/// Reads a whole file. DataError naming the file unless header, dtype, order and size are right.
[[nodiscard]] NpyArray read_npy(const std::filesystem::path& path);

}  // namespace skytape
