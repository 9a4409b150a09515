// CPU half of top_k: a thread reads a row, keeps what can be among the largest, and sorts it.
#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "attention/sampling/sampling_plan.hpp"
#include "tensor/launch/launch.hpp"

namespace skytape::attention {
namespace {

/// Value and position as one sortable entry.
template <class T> using Entry = std::pair<decltype(descending_key(T{})), std::int32_t>;

/// Writes the positions of the k first of a row's entries, in order. `entries` is scratch of up to
/// 4 k: when it is full its k first stay, and what comes behind them is passed over from then on.
template <class T> void top_k_row(const T* values, std::int64_t n, std::int64_t k,
                                  std::vector<Entry<T>>& entries, std::int32_t* out) {
  const auto keep_first = [&] {
    if (k < std::ssize(entries)) {
      std::nth_element(entries.begin(), entries.begin() + (k - 1), entries.end());
      entries.resize(static_cast<std::size_t>(k));
    }
  };
  entries.clear();
  auto bound = std::numeric_limits<typename Entry<T>::first_type>::max();
  for (std::int64_t i = 0; i < n; ++i) {
    const auto key = descending_key(values[i]);
    if (key >= bound) continue;  // on ties an earlier position is first
    entries.emplace_back(key, static_cast<std::int32_t>(i));
    if (std::ssize(entries) < 4 * k) continue;
    keep_first();
    bound = entries.back().first;
  }
  keep_first();
  std::sort(entries.begin(), entries.end());
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

}  // namespace skytape::attention
