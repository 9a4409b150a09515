// CUDA half of top_k: one block sorts the positions of a row by a bitonic network.
#include <limits>

#include "attention/sampling/sampling_plan.hpp"
#include "tensor/launch/cuda.hpp"
#include "tensor/launch/launch.hpp"

namespace skytape::attention {
namespace {

constexpr int kSortBlock = 512;  // threads

/// The order of top_k: larger values first, then lower positions; positions beyond the row (the
/// padding to a power of two) last.
template <class T> struct Before {
  const T* values;  // [n]
  std::int64_t n;

  __device__ T rank(std::int32_t i) const {
    const T x = values[i];
    return x == x ? x : -std::numeric_limits<T>::infinity();
  }
  __device__ bool operator()(std::int32_t i, std::int32_t j) const {
    if (i >= n || j >= n) return i < j;
    const T a = rank(i), b = rank(j);
    return a > b || (a == b && i < j);
  }
};

template <class T> __global__ void top_k_kernel(const T* values, std::int32_t* scratch,
                                                std::int32_t* index, std::int64_t n,
                                                std::int64_t padded, std::int64_t k) {
  const Before<T> before{values + blockIdx.x * n, n};
  std::int32_t* const order = scratch + blockIdx.x * padded;  // [padded]
  for (std::int64_t i = threadIdx.x; i < padded; i += kSortBlock) {
    order[i] = static_cast<std::int32_t>(i);
  }
  __syncthreads();
  for (std::int64_t size = 2; size <= padded; size *= 2) {
    for (std::int64_t distance = size / 2; distance > 0; distance /= 2) {
      for (std::int64_t pair = threadIdx.x; pair < padded / 2; pair += kSortBlock) {
        const std::int64_t i = pair / distance * 2 * distance + pair % distance;
        const std::int64_t j = i + distance;
        const std::int32_t a = order[i], b = order[j];
        const bool ascending = (i & size) == 0;  // in the sense of `before`
        if (before(b, a) == ascending) {
          order[i] = b;
          order[j] = a;
        }
      }
      __syncthreads();
    }
  }
  for (std::int64_t i = threadIdx.x; i < k; i += kSortBlock) index[blockIdx.x * k + i] = order[i];
}

}  // namespace

void top_k_on(Cuda, const Tensor& values, Tensor& index) {
  const std::int64_t n = values.cols(), count = values.rows();
  std::int64_t padded = 1;
  while (padded < n) padded *= 2;
  const Tensor scratch = Tensor::empty({count, padded}, DType::i32, values.device());
  dispatch_float(values.dtype(), [&]<class T>() {
    cuda::launch("top_k", top_k_kernel<T>, static_cast<unsigned>(count), kSortBlock, 0,
                 values.data<T>(), scratch.data<std::int32_t>(), index.data<std::int32_t>(), n,
                 padded, index.cols());
  });
}

}  // namespace skytape::attention
