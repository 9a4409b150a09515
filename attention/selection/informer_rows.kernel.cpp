// Elementwise kernels of Informer's choice of rows.
#include "attention/selection/informer_rows.hpp"
#include "tensor/launch/launch.hpp"

namespace skytape::attention {
namespace {

template <class T> struct SampledKey {
  const T* u;          // [N, S]
  const T* counts;     // [A]
  std::int32_t* keys;  // [A, N, S]
  std::int64_t size;   // N S

  HD void operator()(std::int64_t e) const {
    const double count = static_cast<double>(counts[e / size]);
    const auto key = static_cast<std::int32_t>(count * static_cast<double>(u[e % size]));
    const auto last = static_cast<std::int32_t>(count) - 1;
    keys[e] = math::max(math::min(key, last), 0);
  }
};

template <class T> struct DropDisplaced {
  const T* measure;    // [B, H, N]
  std::int32_t* rows;  // [B, H, T]
  std::int64_t length, slots, top, trimmed;

  HD void operator()(std::int64_t e) const {
    const T value = measure[e / slots * length + rows[e]];
    // Rows of measure zero that are not here come before this one if it is negative.
    if (value < T(0) && e % slots + trimmed >= top) rows[e] = -1;
  }
};

template <class T> struct ChosenRow {
  const std::int32_t* rows;  // [B, H, T]
  std::int32_t* index;       // [B, H, T]
  T* used;                   // [B, H, T]
  T* others;                 // [B, H, N]
  std::int64_t length, slots;

  HD void operator()(std::int64_t e) const {
    const std::int32_t row = rows[e];
    index[e] = row < 0 ? 0 : row;
    used[e] = row < 0 ? T(0) : T(1);
    if (row >= 0) others[e / slots * length + row] = T(0);
  }
};

}  // namespace

void sampled_keys_on(Backend, const Tensor& u, const Tensor& counts, Tensor& keys) {
  dispatch_float(u.dtype(), [&]<class T>() {
    map(keys.numel(),
        SampledKey<T>{u.data<T>(), counts.data<T>(), keys.data<std::int32_t>(), u.numel()});
  });
}

void drop_displaced_on(Backend, const Tensor& measure, std::int64_t top, std::int64_t trimmed,
                       Tensor& rows) {
  dispatch_float(measure.dtype(), [&]<class T>() {
    map(rows.numel(), DropDisplaced<T>{measure.data<T>(), rows.data<std::int32_t>(), measure.cols(),
                                       rows.cols(), top, trimmed});
  });
}

void chosen_rows_on(Backend, const Tensor& rows, Tensor& index, Tensor& used, Tensor& others) {
  dispatch_float(used.dtype(), [&]<class T>() {
    map(rows.numel(), ChosenRow<T>{rows.data<std::int32_t>(), index.data<std::int32_t>(),
                                   used.data<T>(), others.data<T>(), others.cols(), rows.cols()});
  });
}

}  // namespace skytape::attention
