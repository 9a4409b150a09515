#include "attention/informer_rows.hpp"

#include <algorithm>
#include <limits>

#include "attention/informer_rows_plan.hpp"
#include "attention/sampling.hpp"
#include "tensor/gemm.hpp"
#include "tensor/launch.hpp"

namespace skytape::attention {
namespace {

constexpr std::int64_t kAhead = 16;  // keys fetched in advance: their rows lie anywhere in memory
constexpr std::int64_t kLine = 64;   // bytes of a cache line

/// One query against its sampled keys, the first of the `listed` ones from index on.
template <class T> T measure_row(const T* q, const T* keys, const std::int32_t* index,
                                 std::int64_t listed, std::int64_t samples, std::int64_t width,
                                 std::int64_t length) {
  T largest = -std::numeric_limits<T>::infinity(), sum = 0;
  for (std::int64_t s = 0; s < samples; ++s) {
    const T* const key = keys + index[s] * width;
    const T* const later = keys + index[std::min(s + kAhead, listed - 1)] * width;
    for (std::int64_t d = 0; d < width; d += kLine / std::int64_t{sizeof(T)}) {
      __builtin_prefetch(later + d);
    }
    T score = 0;
#pragma omp simd reduction(+ : score)
    for (std::int64_t d = 0; d < width; ++d) score += q[d] * key[d];
    largest = std::max(largest, score);
    sum += score;
  }
  return largest - sum / static_cast<T>(length);
}

}  // namespace

void sampled_measure_on(Cpu, const Tensor& q, const Tensor& k, const Tensor& keys,
                        std::int64_t length, Tensor& measure) {
  const std::int64_t n = q.size(2), width = q.size(3), samples = keys.cols();
  const std::int64_t per_list = keys.size(0) == 1 ? q.size(0) * q.size(1) : q.size(1);  // heads
  const std::int64_t count = measure.numel();
  const std::int32_t* const index = keys.data<std::int32_t>();  // [C, N, S]
  tensor::count_multiply_adds(count * samples * width);
  dispatch_float(q.dtype(), [&]<class T>() {
    const T *const query = q.data<T>(), *const key = k.data<T>();  // [B, H, N, D]
    T* const to = measure.data<T>();                               // [B, H, N]
#pragma omp parallel for schedule(static) if (count * samples * width > cpu::kParallelWork)
    for (std::int64_t row = 0; row < count; ++row) {
      const std::int64_t head = row / n, from = (head / per_list * n + row % n) * samples;
      to[row] = measure_row(query + row * width, key + head * n * width, index + from,
                            keys.numel() - from, samples, width, length);
    }
  });
}

Tensor sampled_keys(const Tensor& u, const Tensor& counts) {
  require_same_kind("sampled_keys", {&u, &counts});
  ENSURE(u.rank() == 2 && counts.rank() == 1,
         "sampled_keys: expected u [N, S] and counts [C], got ", u, ", ", counts);
  Tensor keys = Tensor::empty({counts.size(0), u.size(0), u.size(1)}, DType::i32, u.device());
  on_device(u.device(), [&](auto tag) { sampled_keys_on(tag, u, counts, keys); });
  return keys;
}

Tensor sampled_measure(const Tensor& q, const Tensor& k, const Tensor& keys, std::int64_t length) {
  require_same_kind("sampled_measure", {&q, &k});
  ENSURE(q.rank() == 4 && k.shape() == q.shape(),
         "sampled_measure: expected q, k [B, H, N, D], got ", q, ", ", k);
  ENSURE(keys.dtype() == DType::i32 && keys.device() == q.device() && keys.rank() == 3 &&
             (keys.size(0) == 1 || keys.size(0) == q.size(0)) && keys.size(1) == q.size(2) &&
             keys.size(2) > 0 && length > 0,
         "sampled_measure: expected keys i32[B or 1, N, S] and a positive length for q ", q,
         ", got ", keys, ", length ", length);
  Tensor measure = Tensor::empty(q.shape().first(3), q.dtype(), q.device());
  on_device(q.device(), [&](auto tag) { sampled_measure_on(tag, q, k, keys, length, measure); });
  return measure;
}

Tensor choose_rows(const Tensor& measure, std::int64_t top, std::int64_t trimmed) {
  ENSURE(measure.rank() == 3 && top > 0 && trimmed >= 0,
         "choose_rows: expected measure [B, H, N] and top > 0, got ", measure, ", top ", top,
         ", trimmed ", trimmed);
  Tensor rows = top_k(measure, std::min(top, measure.cols()));
  if (trimmed > 0) {
    on_device(measure.device(),
              [&](auto tag) { drop_displaced_on(tag, measure, top, trimmed, rows); });
  }
  return rows;
}

ChosenRows chosen_rows(const Tensor& rows, const Tensor& like) {
  ENSURE(like.rank() == 4 && rows.dtype() == DType::i32 && rows.device() == like.device() &&
             rows.rank() == 3 && rows.shape().first(2) == like.shape().first(2),
         "chosen_rows: expected rows i32[B, H, T] for ", like, ", got ", rows);
  ChosenRows chosen;
  chosen.index = empty_like(rows);
  chosen.used = Tensor::empty(rows.shape().append(1), like.dtype(), like.device());
  const Shape shape = like.shape().first(3);  // [B, H, N]
  Tensor others = Tensor::full(shape, 1, like.dtype(), like.device());
  on_device(like.device(),
            [&](auto tag) { chosen_rows_on(tag, rows, chosen.index, chosen.used, others); });
  chosen.others = others.reshape(shape.append(1));
  return chosen;
}

}  // namespace skytape::attention
