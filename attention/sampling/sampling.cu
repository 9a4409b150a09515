// CUDA half of top_k: a block sorts the keys of a row as far as its largest values.
#include <algorithm>
#include <limits>
#include <type_traits>

#include "attention/sampling/sampling_plan.hpp"
#include "tensor/launch/launch.hpp"
#include "tensor/movement/bitonic.hpp"

namespace skytape::attention {
namespace {

constexpr int kSortBlock = 512;              // threads, at most
constexpr std::size_t kMostBytes = 1 << 17;  // of shared memory; longer rows are sorted outside it

/// Value and position as one key, the smallest for the largest value.
__device__ std::uint64_t key_of(std::uint32_t value, int i) {
  return std::uint64_t{value} << 32 | static_cast<std::uint32_t>(i);
}
__device__ cuda::LongKey key_of(std::uint64_t value, int i) {
  return {value, static_cast<std::uint32_t>(i)};
}
__device__ std::int32_t position(std::uint64_t key) { return static_cast<std::int32_t>(key); }
__device__ std::int32_t position(const cuda::LongKey& key) {
  return static_cast<std::int32_t>(key.low);
}
template <class T> using Key = std::conditional_t<sizeof(T) == 4, std::uint64_t, cuda::LongKey>;

template <class T> struct Rows {
  const T* values;      // [rows, n]
  std::int32_t* index;  // [rows, k]
  Key<T>* outside;      // [rows, padded], for rows that do not fit into shared memory
  std::int64_t n, k;
  int padded, keep;  // n and k as keep_smallest takes them
};

template <class T, bool kShared> __global__ void top_k_kernel(Rows<T> rows) {
  const std::int64_t row = blockIdx.x;
  Key<T>* const keys = kShared ? reinterpret_cast<Key<T>*>(cuda::dynamic_shared())
                               : rows.outside + row * rows.padded;
  for (int i = threadIdx.x; i < rows.padded; i += blockDim.x) {
    constexpr auto kLast = ~decltype(descending_key(T{})){0};  // pads the row
    keys[i] = key_of(i < rows.n ? descending_key(rows.values[row * rows.n + i]) : kLast, i);
  }
  __syncthreads();
  cuda::keep_smallest(keys, rows.padded, rows.keep);
  for (int i = threadIdx.x; i < rows.k; i += blockDim.x) {
    rows.index[row * rows.k + i] = position(keys[i]);
  }
}

}  // namespace

void top_k_on(Cuda, const Tensor& values, Tensor& index) {
  const std::int64_t n = values.cols(), k = index.cols(), count = values.rows();
  const std::int64_t padded = cuda::padded_keys(n);
  ENSURE(padded <= std::numeric_limits<std::int32_t>::max(), "top_k: rows too long: ", values);
  const auto threads = static_cast<unsigned>(std::min<std::int64_t>(kSortBlock, padded / 2));
  dispatch_float(values.dtype(), [&]<class T>() {
    Rows<T> rows{values.data<T>(),
                 index.data<std::int32_t>(),
                 nullptr,
                 n,
                 k,
                 static_cast<int>(padded),
                 static_cast<int>(cuda::padded_keys(k))};
    const auto launch = [&](void (*kernel)(Rows<T>), std::size_t shared) {
      cuda::launch({"top_k", static_cast<unsigned>(count), threads, shared}, kernel, rows);
    };
    const std::int64_t bytes = padded * static_cast<std::int64_t>(sizeof(Key<T>));  // of a row
    const auto room = std::min(kMostBytes, cuda::device_facts().shared_bytes);
    if (static_cast<std::size_t>(bytes) <= room) return launch(top_k_kernel<T, true>, bytes);
    const Tensor outside = Tensor::empty({count, bytes / 4}, DType::i32, values.device());
    rows.outside = reinterpret_cast<Key<T>*>(outside.data<std::int32_t>());
    launch(top_k_kernel<T, false>, 0);
  });
}

}  // namespace skytape::attention
