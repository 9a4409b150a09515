// The measure's half on the CPU: one product after the other, each vectorised.
#include <algorithm>
#include <limits>
#include <numeric>
#include <type_traits>

#include "attention/selection/informer_rows.hpp"
#include "tensor/gemm/gemm.hpp"
#include "tensor/launch/launch.hpp"
#include "tensor/launch/math.hpp"

namespace skytape::attention {
namespace {

constexpr std::int64_t kGroup = 16;  // keys whose sums are taken together
constexpr std::int64_t kLanes = 16;  // partial sums of one score
constexpr std::int64_t kAhead = 48;  // keys between use and fetch
constexpr std::int64_t kLine = 64;   // bytes of a cache line

/// Scores of one query with `count` <= kGroup keys, into scores[kGroup]. Adding up one vector is
/// slow, adding neighbours in all vectors of a group is not: log2(kLanes) rounds of that. The rows
/// of keys lie anywhere in memory, so those of `later`, as many, are fetched in advance.
template <class T, class Width>
void group_scores(const T* q, const T* keys, const std::int32_t* index, const std::int32_t* later,
                  std::int64_t count, Width width, T* scores) {
  const std::int64_t whole = width / kLanes * kLanes;
  T partial[kGroup * kLanes];  // [kGroup, kLanes]
  for (std::int64_t s = 0; s < kGroup; ++s) {
    const std::int64_t listed = std::min(s, count - 1);
    for (std::int64_t d = 0; d < width; d += kLine / std::int64_t{sizeof(T)}) {
      __builtin_prefetch(keys + later[listed] * width + d);
    }
    const T* const key = keys + index[listed] * width;
    T sums[kLanes] = {};
    for (std::int64_t d = 0; d < whole; d += kLanes) {
#pragma omp simd
      for (std::int64_t l = 0; l < kLanes; ++l) sums[l] += q[d + l] * key[d + l];
    }
    for (std::int64_t d = whole; d < width; ++d) sums[d - whole] += q[d] * key[d];
    std::copy_n(sums, kLanes, partial + s * kLanes);
  }
  for (std::int64_t half = kGroup * kLanes / 2; half > kGroup; half /= 2) {
#pragma omp simd
    for (std::int64_t i = 0; i < half; ++i) partial[i] = partial[2 * i] + partial[2 * i + 1];
  }
#pragma omp simd
  for (std::int64_t s = 0; s < kGroup; ++s) scores[s] = partial[2 * s] + partial[2 * s + 1];
}

/// One query against its sampled keys, the first `samples` of the `listed` ones from index on.
template <class T, class Width> T measure_row(const T* q, const T* keys, const std::int32_t* index,
                                              std::int64_t listed, std::int64_t samples,
                                              Width width, std::int64_t length) {
  T scores[kGroup], largest[kGroup], sum[kGroup] = {};  // of every kGroup-th key
  std::fill_n(largest, kGroup, -std::numeric_limits<T>::infinity());
  for (std::int64_t s = 0; s < samples; s += kGroup) {
    const std::int64_t count = std::min(kGroup, samples - s);
    const std::int64_t later = std::min(s + kAhead, listed - count);
    group_scores(q, keys, index + s, index + later, count, width, scores);
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) {
      largest[i] = math::max(largest[i], scores[i]);
      sum[i] += scores[i];
    }
  }
  return *std::max_element(largest, largest + kGroup) -
         std::accumulate(sum, sum + kGroup, T(0)) / static_cast<T>(length);
}

}  // namespace

void sampled_measure_on(Cpu, const Tensor& q, const Tensor& k, const Tensor& keys,
                        std::int64_t length, Tensor& measure) {
  const std::int64_t n = q.size(2), width = q.size(3), samples = keys.cols();
  const std::int64_t per_list = keys.size(0) == 1 ? q.size(0) * q.size(1) : q.size(1);  // heads
  const std::int64_t count = measure.numel();
  const std::int32_t* const index = keys.data<std::int32_t>();  // [A, N, S]
  dispatch_float(q.dtype(), [&]<class T>() {
    const T *const query = q.data<T>(), *const key = k.data<T>();  // [B, H, N, D]
    T* const to = measure.data<T>();                               // [B, H, N]
    const auto run = [&](auto row_width) {
#pragma omp parallel for schedule(static) if (count * samples * width > cpu::kParallelWork)
      for (std::int64_t row = 0; row < count; ++row) {
        const std::int64_t head = row / n, from = (head / per_list * n + row % n) * samples;
        to[row] = measure_row(query + row * width, key + head * n * width, index + from,
                              keys.numel() - from, samples, row_width, length);
      }
    };
    using PaperWidth = std::integral_constant<std::int64_t, 32>;  // known to the compiler: faster
    if (width == PaperWidth::value) return run(PaperWidth());
    run(width);
  });
}

}  // namespace skytape::attention
