// CUDA half of tensor::transpose: tiles go through shared memory, so that reads and writes are both
// contiguous.
#include <cstddef>
#include <cstdint>

#include "tensor/core/tensor.hpp"
#include "tensor/launch/cuda.hpp"
#include "tensor/movement/layout.hpp"

namespace skytape::tensor {
namespace {

constexpr int kTile = 32;
constexpr int kTileRows = 8;  // rows of a tile that a block moves at a time

template <class Word> __global__ void transpose_kernel(std::int64_t batch, std::int64_t n,
                                                       std::int64_t m, const Word* from, Word* to) {
  auto& tile = cuda::shared<Word[kTile][kTile + 1]>();  // + 1: a column then touches every bank
  const std::int64_t row_tiles = ceil_div(n, kTile), column_tiles = ceil_div(m, kTile);
  for (std::int64_t task = blockIdx.x; task < batch * row_tiles * column_tiles; task += gridDim.x) {
    const std::int64_t i0 = task / column_tiles % row_tiles * kTile;
    const std::int64_t j0 = task % column_tiles * kTile;
    const std::int64_t b = task / column_tiles / row_tiles;
    const std::int64_t x = threadIdx.x;
    for (std::int64_t y = threadIdx.y; y < kTile; y += kTileRows) {
      if (i0 + y < n && j0 + x < m) tile[y][x] = from[(b * n + i0 + y) * m + j0 + x];
    }
    __syncthreads();
    for (std::int64_t y = threadIdx.y; y < kTile; y += kTileRows) {
      if (j0 + y < m && i0 + x < n) to[(b * m + j0 + y) * n + i0 + x] = tile[x][y];
    }
    __syncthreads();  // the next task reuses `tile`
  }
}

template <class Word>
void transpose(std::int64_t batch, std::int64_t n, std::int64_t m, const void* from, void* to) {
  const std::int64_t tasks = batch * ceil_div(n, kTile) * ceil_div(m, kTile);
  if (tasks == 0) return;
  cuda::launch({"transpose", cuda::grid_for(tasks, 1), dim3(kTile, kTileRows)},
               transpose_kernel<Word>, batch, n, m, static_cast<const Word*>(from),
               static_cast<Word*>(to));
}

}  // namespace

void transpose_on(Cuda, std::int64_t batch, std::int64_t n, std::int64_t m, std::size_t size,
                  const void* from, void* to) {
  size == 8 ? transpose<std::uint64_t>(batch, n, m, from, to)
            : transpose<std::uint32_t>(batch, n, m, from, to);
}

}  // namespace skytape::tensor
