// Broken piece 5: means of rows as a CUDA kernel. One line is wrong.
// tool: the simulated device
// minutes: 10
//
// A block has a row of n numbers. It was tried with rows of 128 and 300, and it worked. Fresh
// memory of the simulated device is NaN, shared memory too; on a GPU it is whatever was there
// before, often zero: so this one may pass for years.
#include "tests/exercises/device.hpp"

#include <cstdio>

using namespace skytape;
using namespace skytape::exercises;

constexpr int kThreads = 128;

__global__ void row_means(Numbers x, float* y, int n) {
  auto& part = cuda::shared<float[kThreads]>();
  const int t = static_cast<int>(threadIdx.x), row = static_cast<int>(blockIdx.x);
  float sum = 0;
  for (int c = t; c < n; c += kThreads) sum += x[row * n + c];
  if (t < n) part[t] = sum;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (t < half) part[t] += part[t + half];
    __syncthreads();
  }
  if (t == 0) y[row] = part[0] / static_cast<float>(n);
}

int main() {
  return judge([](Judge& j) {
    Judge::tolerate(1e-5);
    for (const int n : {128, 300, 100}) {
      const Matrix x = random_matrix(3, n);
      const DeviceArray from(x), to(3);
      run("row_means", row_means, 3, kThreads, from.numbers(), to.data(), n);
      j.asks("means of rows of " + std::to_string(n))
          .same("y", to.read(3, 1), (1.0 / n) * matmul(x, Matrix(n, 1, 1.0)),
                "NaN that no input had: some memory was read before it was written.");
    }
  });
}

// hint: Which entries of part are read in the first round, and which were written, for n = 100?
