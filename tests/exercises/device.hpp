// Kernels of exercises on the simulated device (tests/cuda_simulator), which sees races between
// warps and fills fresh memory with NaN. Compiled as tests/cuda_simulator wants it:
// train/scripts/exercise.sh.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "tests/cuda_simulator/simulator.hpp"
#include "tests/exercises/judge.hpp"

/// As the library's kernels write it: cuda::shared<float[128]>() is the block's array of that type,
/// in CUDA's own words `__shared__ float name[128];`. One array a type: put two into a struct.
namespace skytape::cuda {
using cuda_simulator::shared;
}

namespace skytape::exercises {

/// Collects the errors of a kernel, which cannot throw, and counts its reads. run() empties it.
struct DeviceFaults {
  std::string to_write;              // where a kernel is still to be written
  std::vector<std::uint32_t> reads;  // of Numbers, by each thread of the grid
  int outside = 0, size = 0;         // an index beyond Numbers of this size; size 0: none

  [[nodiscard]] int all_reads() const { return std::accumulate(reads.begin(), reads.end(), 0); }
  [[nodiscard]] int most_reads() const {  // of a thread
    return static_cast<int>(*std::max_element(reads.begin(), reads.end()));
  }
};
inline DeviceFaults faults;

/// Stands where a kernel is to be written.
inline void write_kernel_here(const Place& at = Place::current()) {
  if (threadIdx.x + blockIdx.x + threadIdx.y + blockIdx.y > 0) return;
  faults.to_write = "line " + std::to_string(at.line());
}

/// Numbers in device memory that a kernel reads as from a pointer: counted, and not beyond their
/// end.
struct Numbers {
  const float* data;
  int size;
  float operator[](int i) const {
    const unsigned block = blockIdx.y * gridDim.x + blockIdx.x;
    const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x;
    ++faults.reads[block * blockDim.x * blockDim.y + thread];
    if (i >= 0 && i < size) return data[i];
    faults.outside = i;
    faults.size = size;
    return NAN;
  }
};

/// An array of floats in device memory, NaN at first. Numbers behind its end show who writes there.
class DeviceArray {
 public:
  explicit DeviceArray(int size) : DeviceArray(std::vector<float>(size, NAN)) {}
  explicit DeviceArray(const Matrix& m) : DeviceArray(numbers_of(m)) {}
  ~DeviceArray() {
    (void)cudaFree(data_);
    (void)cudaStreamDestroy(stream_);
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  [[nodiscard]] float* data() const { return data_; }
  [[nodiscard]] Numbers numbers() const { return {data_, size_}; }
  [[nodiscard]] Matrix read(int rows, int columns) const {
    std::vector<float> host(static_cast<std::size_t>(size_ + kBehind));
    ok(cudaMemcpyAsync(host.data(), data_, bytes(), cudaMemcpyDeviceToHost, stream_));
    ok(cudaStreamSynchronize(stream_));
    for (int e = size_; e < size_ + kBehind; ++e) {
      if (host[static_cast<std::size_t>(e)] == kNobodyWrites) continue;
      throw Wrong{"the kernel writes inside its arrays",
                  "it writes index " + std::to_string(e) + " of an array of " +
                      std::to_string(size_) +
                      " numbers. Test the row and the column before you "
                      "write. "};
    }
    Matrix m(rows, columns);
    for (int e = 0; e < rows * columns; ++e) {
      m(e / columns, e % columns) = host[static_cast<std::size_t>(e)];
    }
    return m;
  }

 private:
  static constexpr int kBehind = 4096;
  static constexpr float kNobodyWrites = -98765.0f;

  explicit DeviceArray(std::vector<float> host) : size_(static_cast<int>(host.size())) {
    host.resize(host.size() + kBehind, kNobodyWrites);
    ok(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    ok(cudaMalloc(reinterpret_cast<void**>(&data_), bytes()));
    ok(cudaMemcpyAsync(data_, host.data(), bytes(), cudaMemcpyHostToDevice, stream_));
    ok(cudaStreamSynchronize(stream_));
  }
  static std::vector<float> numbers_of(const Matrix& m) {
    std::vector<float> numbers;
    for (int e = 0; e < m.rows * m.columns; ++e) {
      numbers.push_back(static_cast<float>(m(e / m.columns, e % m.columns)));
    }
    return numbers;
  }
  [[nodiscard]] std::size_t bytes() const {
    return static_cast<std::size_t>(size_ + kBehind) * sizeof(float);
  }
  static void ok(cudaError_t status) {
    if (status != cudaSuccess) throw Wrong{"the device's memory", cudaGetErrorString(status)};
  }
  cudaStream_t stream_ = nullptr;
  float* data_ = nullptr;
  int size_ = 0;
};

/// Runs kernel<<<blocks, threads>>>(arguments…); throws Wrong with what the device saw.
template <class... P, class... A>
void run(const char* name, void (*kernel)(P...), dim3 blocks, dim3 threads, A... arguments) {
  cudaStream_t stream = nullptr;
  (void)cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  faults = {};
  faults.reads.assign(std::size_t{1} * blocks.x * blocks.y * threads.x * threads.y, 0);
  cuda_simulator::launch(name, kernel, blocks, threads, 1, 0, stream, arguments...);
  const cudaError_t status = cudaGetLastError();
  std::string seen = status == cudaSuccess ? "" : cudaGetErrorString(status);
  (void)cudaStreamDestroy(stream);
  if (!faults.to_write.empty()) throw ToDo{std::string(name) + ", " + faults.to_write};
  if (seen.find("a race") != seen.npos) {
    seen += ". A __syncthreads() is missing between these two accesses: warps run in any order. ";
  } else if (seen.find("deadlock") != seen.npos) {
    seen +=
        ". Every thread of the block must come to each __syncthreads(): none inside an if that "
        "only "
        "some enter. ";
  }
  if (!seen.empty()) throw Wrong{std::string("kernel ") + name + " runs", seen};
  if (faults.size > 0) {
    throw Wrong{std::string("kernel ") + name + " reads inside its arrays",
                "it reads index " + std::to_string(faults.outside) + " of an array of " +
                    std::to_string(faults.size) +
                    " numbers. Test the row and the channel before you read. "};
  }
}

}  // namespace skytape::exercises
