#include "attention/sampling/sampling.hpp"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "attention/sampling/sampling_plan.hpp"
#include "tensor/core/on_device.hpp"
#include "tensor/launch/launch.hpp"

namespace skytape::attention {
namespace {

void check(const char* op, const Tensor& values, std::int64_t k, std::int64_t most) {
  ENSURE(values.rank() >= 1 && values.dtype() != DType::i32, op,
         ": expected f32 or f64 rows [..., n], got ", values);
  ENSURE(values.cols() < std::numeric_limits<std::int32_t>::max(), op, ": rows too long: ", values);
  ENSURE(k >= 0 && k <= most, op, ": cannot choose ", k, " positions of ", values);
}

NumberPlan plan_for(const char* op, const Tensor& weights, const RowNumbers& numbers) {
  return {numbers.random.key, tensor::step_data(op, numbers.random, weights.device()),
          numbers.first_row, numbers.row_length, numbers.alike};
}

Tensor index_like(const Tensor& values, std::int64_t k) {
  return Tensor::empty(values.shape().with(values.rank() - 1, k), DType::i32, values.device());
}

/// Value and position as one sortable entry.
template <class T> using Entry = std::pair<decltype(descending_key(T{})), std::int32_t>;

template <class T> void top_k_row(const T* values, std::int64_t n, std::int64_t k,
                                  std::vector<Entry<T>>& entries, std::int32_t* out) {
  entries.resize(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) {
    entries[i] = {descending_key(values[i]), static_cast<std::int32_t>(i)};
  }
  if (k < n) std::nth_element(entries.begin(), entries.begin() + k, entries.end());
  std::sort(entries.begin(), entries.begin() + k);
  for (std::int64_t i = 0; i < k; ++i) out[i] = entries[i].second;
}

}  // namespace

void top_k_on(Cpu, const Tensor& values, Tensor& index) {
  const std::int64_t n = values.cols(), k = index.cols(), count = values.rows();
  std::int32_t* const out = index.data<std::int32_t>();  // [rows, k]
  dispatch_float(values.dtype(), [&]<class T>() {
    const T* const in = values.data<T>();  // [rows, n]
#pragma omp parallel if (count > 1)
    {
      std::vector<Entry<T>> entries;
#pragma omp for schedule(static)
      for (std::int64_t row = 0; row < count; ++row) {
        top_k_row(in + row * n, n, k, entries, out + row * k);
      }
    }
  });
}

Tensor top_k(const Tensor& values, std::int64_t k) {
  check("top_k", values, k, values.cols());
  Tensor index = index_like(values, k);
  if (index.numel() == 0) return index;
  on_device(values.device(), [&](auto tag) { top_k_on(tag, values, index); });
  return index;
}

Tensor sample_without_replacement(const Tensor& weights, std::int64_t k,
                                  const RowNumbers& numbers) {
  check("sample_without_replacement", weights, k, weights.cols());
  const NumberPlan plan = plan_for("sample_without_replacement", weights, numbers);
  Tensor keys = empty_like(weights);  // [..., n]
  on_device(weights.device(), [&](auto tag) { race_keys_on(tag, plan, weights, keys); });
  return top_k(keys, k);
}

Tensor sample_with_replacement(const Tensor& weights, std::int64_t k, const RowNumbers& numbers) {
  check("sample_with_replacement", weights, k, std::numeric_limits<std::int32_t>::max());
  ENSURE(weights.cols() > 0, "sample_with_replacement: nothing to draw from: ", weights);
  const NumberPlan plan = plan_for("sample_with_replacement", weights, numbers);
  Tensor index = index_like(weights, k);
  Tensor cumulative = empty_like(weights);  // [..., n]
  on_device(weights.device(),
            [&](auto tag) { invert_cumulative_on(tag, plan, weights, cumulative, index); });
  return index;
}

}  // namespace skytape::attention
