// CPU half of tensor::transpose; the CUDA half is transpose.cu.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "tensor/core/tensor.hpp"
#include "tensor/launch/launch.hpp"
#include "tensor/movement/layout.hpp"

namespace skytape::tensor {
namespace {

constexpr std::int64_t kTile = 32;  // a tile's rows and columns stay in L1

template <class Word>
void transpose(std::int64_t batch, std::int64_t n, std::int64_t m, const Word* from, Word* to) {
  const std::int64_t row_tiles = ceil_div(n, kTile);
  const std::int64_t column_tiles = ceil_div(m, kTile);
#pragma omp parallel for schedule(static) if (batch * n * m > cpu::kParallelWork)
  for (std::int64_t task = 0; task < batch * row_tiles * column_tiles; ++task) {
    const std::int64_t i0 = task % row_tiles * kTile;
    const std::int64_t j0 = task / row_tiles % column_tiles * kTile;
    const std::int64_t b = task / row_tiles / column_tiles;
    const std::int64_t rows = std::min(kTile, n - i0), columns = std::min(kTile, m - j0);
    const Word* const source = from + (b * n + i0) * m + j0;
    Word* const target = to + (b * m + j0) * n + i0;
    for (std::int64_t j = 0; j < columns; ++j) {
      for (std::int64_t i = 0; i < rows; ++i) target[j * n + i] = source[i * m + j];
    }
  }
}

}  // namespace

void transpose_on(Cpu, std::int64_t batch, std::int64_t n, std::int64_t m, std::size_t size,
                  const void* from, void* to) {
  if (size == 8) {
    transpose(batch, n, m, static_cast<const std::uint64_t*>(from),
              static_cast<std::uint64_t*>(to));
  } else {
    transpose(batch, n, m, static_cast<const std::uint32_t*>(from),
              static_cast<std::uint32_t*>(to));
  }
}

}  // namespace skytape::tensor
