// Informer's measure on the GPU: a warp per query, a thread per product with a sampled key.
#include <type_traits>

#include "attention/selection/informer_rows_plan.hpp"
#include "tensor/launch/launch.hpp"

namespace skytape::attention {
namespace {

template <class T> struct SampledMeasure {
  const T *q, *k;            // [B, H, N, D]
  const std::int32_t* keys;  // [A, N, S]
  T* measure;                // [B, H, N]
  std::int64_t length, rows, width, samples, heads_per_list;

  template <class Team> __device__ void operator()(std::int64_t row, const Team& team) const {
    constexpr std::int64_t kThreads = std::is_same_v<Team, cuda::Warp> ? cuda::kWarp : cuda::kBlock;
    const std::int64_t head = row / rows;
    const T* const query = q + row * width;
    const T* const key = k + head * rows * width;
    const std::int32_t* const index = keys + (head / heads_per_list * rows + row % rows) * samples;
    T mine = 0;  // sum of this thread's products: each is needed twice and computed once
    const T largest = team.max(samples, [&](std::int64_t s) {
      const T* const other = key + index[s] * width;
      T score = 0;
      for (std::int64_t d = 0; d < width; ++d) score += query[d] * other[d];
      mine += score;
      return score;
    });
    const T sum = team.sum(kThreads, [&](std::int64_t) { return mine; });
    if (team.leader()) measure[row] = largest - sum / static_cast<T>(length);
  }
};

}  // namespace

void sampled_measure_on(Cuda, const Tensor& q, const Tensor& k, const Tensor& keys,
                        std::int64_t length, Tensor& measure) {
  const std::int64_t per_list = keys.size(0) == 1 ? q.size(0) * q.size(1) : q.size(1);
  cuda::computes(measure.numel() * keys.cols() * q.size(3));
  dispatch_float(q.dtype(), [&]<class T>() {
    cuda::rows(
        measure.numel(), keys.cols(),
        SampledMeasure<T>{q.data<T>(), k.data<T>(), keys.data<std::int32_t>(), measure.data<T>(),
                          length, q.size(2), q.size(3), keys.cols(), per_list});
  });
}

}  // namespace skytape::attention
