// Broken piece 4: softmax of rows as a CUDA kernel. One line is missing.
// tool: the simulated device
// minutes: 15
//
// A block has a row. Its threads find the largest number together, then the sum of e^(x - largest),
// both by halves through the same array in shared memory; exercise 12 explains the words. Say the
// number of the line after which something is missing.
#include "tests/exercises/device.hpp"

#include <algorithm>
#include <cstdio>

using namespace skytape;
using namespace skytape::exercises;

constexpr int kThreads = 128;

__global__ void softmax_rows(Numbers x, float* y, int n) {
  auto& part = cuda::shared<float[kThreads]>();
  const int t = static_cast<int>(threadIdx.x);
  const int first = static_cast<int>(blockIdx.x) * n;

  float largest = -INFINITY;
  for (int c = t; c < n; c += kThreads) largest = std::max(largest, x[first + c]);
  part[t] = largest;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (t < half) part[t] = std::max(part[t], part[t + half]);
    __syncthreads();
  }
  largest = part[0];

  float sum = 0;
  for (int c = t; c < n; c += kThreads) sum += std::exp(x[first + c] - largest);
  part[t] = sum;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (t < half) part[t] += part[t + half];
    __syncthreads();
  }
  sum = part[0];

  for (int c = t; c < n; c += kThreads) y[first + c] = std::exp(x[first + c] - largest) / sum;
}

int main() {
  return judge([](Judge& j) {
    Judge::tolerate(1e-5);
    const Matrix x = 3 * random_matrix(4, 300);
    const DeviceArray from(x), to(4 * 300);
    run("softmax_rows", softmax_rows, 4, kThreads, from.numbers(), to.data(), 300);
    j.asks("softmax of 4 rows of 300").same("y", to.read(4, 300), softmax(x), "");
  });
}

// hint: part is used for two things. Who may still be reading the first when somebody writes the
// hint: second?
