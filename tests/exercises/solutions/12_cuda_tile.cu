// Solution of exercise 12. Two barriers a piece: the first for those who read, the second for those
// who would overwrite.
#include "tests/exercises/device.hpp"

using namespace skytape;
using namespace skytape::exercises;

__global__ void row_sums(Numbers x, float* y, int n) {
  auto& part = cuda::shared<float[kThreads]>();
  const int t = static_cast<int>(threadIdx.x), row = static_cast<int>(blockIdx.x);
  float sum = 0;
  for (int c = t; c < n; c += kThreads) sum += x[row * n + c];
  part[t] = sum;
  __syncthreads();  // all partial sums are there
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (t < half) part[t] += part[t + half];
    __syncthreads();  // the round is over
  }
  if (t == 0) y[row] = part[0];
}

__global__ void products(Numbers q, Numbers k, float* s, int n, int m, int d) {
  auto& tile = cuda::shared<Tiles>();
  const int x = static_cast<int>(threadIdx.x), y = static_cast<int>(threadIdx.y);
  const int row = static_cast<int>(blockIdx.y) * kTile + y;
  const int first_key = static_cast<int>(blockIdx.x) * kTile;
  float sum = 0;
  for (int c0 = 0; c0 < d; c0 += kTile) {
    const bool channel = c0 + x < d;
    tile.q[y][x] = channel && row < n ? q[row * d + c0 + x] : 0;
    tile.k[y][x] = channel && first_key + y < m ? k[(first_key + y) * d + c0 + x] : 0;
    __syncthreads();  // the piece is there
    for (int c = 0; c < kTile; ++c) sum += tile.q[y][c] * tile.k[x][c];
    __syncthreads();  // all are done with it
  }
  if (row < n && first_key + x < m) s[row * m + first_key + x] = sum;
}
