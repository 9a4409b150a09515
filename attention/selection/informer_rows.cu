// Informer's measure on the GPU. The keys of a head pass through shared memory, part by part, as
// each of them is sampled by many queries. A warp looks for those of the part in the list of one
// query; a lane forms the product with one of them.
#include <algorithm>
#include <limits>

#include "attention/selection/informer_rows.hpp"
#include "tensor/core/tensor.hpp"
#include "tensor/launch/four.hpp"
#include "tensor/launch/launch.hpp"

namespace skytape::attention {
namespace {

constexpr int kWarps = 16;
constexpr int kThreads = kWarps * cuda::kWarp;
constexpr std::int64_t kPartBytes = 1 << 17;  // of keys in shared memory, at most
constexpr unsigned kQueue = 2 * cuda::kWarp;  // sampled keys that wait for a product
constexpr int kFours = 8;                     // of 32 columns

template <class T> struct Sample {
  const T *q, *k;            // [B, H, N, D]
  const std::int32_t* keys;  // [A, N, S]
  T* measure;                // [B, H, N]
  std::int64_t length, heads_per_list, width;
  int rows, samples;    // N, S
  int blocks, queries;  // blocks of a head; queries of a warp, at most one a lane
  int part, stride;     // keys of a part; fours of a row in shared memory, a multiple of kFours
};

/// A warp's query in shared memory. Lanes take the fours of 32 columns in separate orders: with
/// different keys they then read different banks. kOnce: there are no more columns, which stay in
/// registers.
template <class T, bool kOnce> struct Query {
  const cuda::Four<T>* row;  // [stride]
  int stride, lane;
  cuda::Four<T> own[kFours];

  __device__ Query(const cuda::Four<T>* from, int fours, int of_lane)
      : row(from), stride(fours), lane(of_lane) {
    if constexpr (kOnce) load(own, row);
  }
  __device__ void load(cuda::Four<T> (&to)[kFours], const cuda::Four<T>* from) const {
#pragma unroll
    for (int c = 0; c < kFours; ++c) to[c] = from[c ^ (lane % kFours)];
  }
  __device__ T times(const cuda::Four<T>* key) {
    T sums[4] = {};  // of every fourth column
    for (int first = 0; first < (kOnce ? kFours : stride); first += kFours) {
      if constexpr (!kOnce) load(own, row + first);
      cuda::Four<T> other[kFours];
      load(other, key + first);
#pragma unroll
      for (int c = 0; c < kFours; ++c) {
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[i] += own[c].x[i] * other[c].x[i];
      }
    }
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
  }
};

template <class T> struct Scores {
  T largest = -std::numeric_limits<T>::infinity(), sum = 0;

  __device__ void add(T most, T total) {
    largest = math::max(most, largest);
    sum += total;
  }
  __device__ void add_lanes() {
#pragma unroll
    for (int distance = cuda::kWarp / 2; distance > 0; distance /= 2) {
      add(__shfl_xor_sync(cuda::kAllLanes, largest, distance),
          __shfl_xor_sync(cuda::kAllLanes, sum, distance));
    }
  }
};

/// The query's scores with those keys of its list [S] that are among keys [count, stride], which
/// are the rows from `begin` on. They wait in a queue until each lane gets one.
template <class T, bool kOnce>
__device__ Scores<T> scores_in_part(Query<T, kOnce>& query, const std::int32_t* list, int samples,
                                    const cuda::Four<T>* keys, int begin, int count, int* queue) {
  Scores<T> scores;
  unsigned found = 0, taken = 0;
  const auto sample = [&](int s) { return s + query.lane < samples ? list[s + query.lane] : -1; };
  int next = sample(0);  // fetched one round ahead
  for (int s = 0; s < samples; s += cuda::kWarp) {
    const int key = next - begin;
    next = sample(s + cuda::kWarp);
    const bool here = key >= 0 && key < count;
    const unsigned votes = __ballot_sync(cuda::kAllLanes, here);
    const unsigned before = __popc(votes & ((1u << query.lane) - 1));
    if (here) queue[(found + before) % kQueue] = key;
    found += __popc(votes);
    __syncwarp();
    const bool last = s + cuda::kWarp >= samples;
    while (found >= taken + cuda::kWarp || (last && found > taken)) {
      if (const unsigned place = taken + query.lane; place < found) {
        const T score = query.times(keys + queue[place % kQueue] * query.stride);
        scores.add(score, score);
      }
      taken += cuda::kWarp;
      __syncwarp();
    }
  }
  scores.add_lanes();
  return scores;
}

template <class T, bool kOnce> __global__ void __launch_bounds__(kThreads, 1)
    measure_kernel(Sample<T> in) {
  const int warp = threadIdx.x / cuda::kWarp, lane = threadIdx.x % cuda::kWarp;
  const int stride = kOnce ? kFours : in.stride;
  auto* const keys = reinterpret_cast<cuda::Four<T>*>(cuda::dynamic_shared());  // [part, stride]
  cuda::Four<T>* const own = keys + (in.part + warp) * stride;                  // [stride]
  auto& queues = cuda::shared<int[kWarps][kQueue]>();
  const std::int64_t head = blockIdx.x / in.blocks;
  const T* const q = in.q + head * in.rows * in.width;  // [N, D]
  const T* const k = in.k + head * in.rows * in.width;
  const std::int32_t* const lists = in.keys + head / in.heads_per_list * in.rows * in.samples;
  const int first = (static_cast<int>(blockIdx.x) % in.blocks * kWarps + warp) * in.queries;
  const int end = math::min(first + in.queries, in.rows);
  Scores<T> mine;  // of query first + lane
  for (int begin = 0; begin < in.rows; begin += in.part) {
    const int count = math::min(in.part, in.rows - begin);
    __syncthreads();
    for (int row = threadIdx.x / kFours; row < count; row += kThreads / kFours) {
      for (int c = threadIdx.x % kFours; c < stride; c += kFours) {
        keys[row * stride + c] = cuda::load_four(k, begin + row, in.rows, in.width, 4 * c);
      }
    }
    __syncthreads();
    for (int i = first; i < end; ++i) {
      for (int c = lane; c < 4 * stride; c += cuda::kWarp) {
        own[c / 4].x[c % 4] = c < in.width ? q[i * in.width + c] : T(0);
      }
      __syncwarp();
      Query<T, kOnce> query(own, stride, lane);
      const Scores<T> scores = scores_in_part(query, lists + std::int64_t{i} * in.samples,
                                              in.samples, keys, begin, count, queues[warp]);
      if (lane == i - first) mine.add(scores.largest, scores.sum);
    }
  }
  if (first + lane < end) {
    in.measure[head * in.rows + first + lane] = mine.largest - mine.sum / static_cast<T>(in.length);
  }
}

}  // namespace

void sampled_measure_on(Cuda, const Tensor& q, const Tensor& k, const Tensor& keys,
                        std::int64_t length, Tensor& measure) {
  if (measure.numel() == 0) return;
  const std::int64_t heads = q.size(0) * q.size(1), n = q.size(2), width = q.size(3);
  constexpr std::int64_t kColumns = 4 * kFours;
  const std::int64_t fours = ceil_div(width, kColumns) * kFours;
  dispatch_float(q.dtype(), [&]<class T>() {
    const std::int64_t row_bytes = fours * static_cast<std::int64_t>(sizeof(cuda::Four<T>));
    // The device's, without the queues and a row for each warp.
    const auto room = static_cast<std::int64_t>(cuda::device_facts().shared_bytes) -
                      kWarps * (row_bytes + kQueue * static_cast<std::int64_t>(sizeof(int)));
    const std::int64_t part_bytes = std::min(kPartBytes, room);
    ENSURE(row_bytes <= part_bytes, "sampled_measure on cuda: heads too wide: q ", q);
    Sample<T> in{};
    in.q = q.data<T>();
    in.k = k.data<T>();
    in.keys = keys.data<std::int32_t>();
    in.measure = measure.data<T>();
    in.length = length;
    in.heads_per_list = keys.size(0) == 1 ? heads : q.size(1);
    in.width = width;
    in.rows = static_cast<int>(n);
    in.samples = static_cast<int>(keys.cols());
    in.queries = std::min(ceil_div(in.rows, kWarps), cuda::kWarp);
    in.blocks = ceil_div(in.rows, kWarps * in.queries);
    in.part = static_cast<int>(std::min(part_bytes / row_bytes, n));
    in.stride = static_cast<int>(fours);
    void (*const kernel)(Sample<T>) =
        width <= kColumns ? measure_kernel<T, true> : measure_kernel<T, false>;
    const std::size_t bytes = (in.part + kWarps) * row_bytes;
    cuda::launch({"sampled measure", static_cast<unsigned>(heads * in.blocks), kThreads, bytes},
                 kernel, in);
  });
}

}  // namespace skytape::attention
