// Row kernels of random features: orthogonal rows, maxima, rows picked by index.
#include "attention/random_features/random_features_plan.hpp"
#include "tensor/launch/launch.hpp"

namespace skytape::attention {
namespace {

/// Gram-Schmidt, every row twice: once leaves errors of the order of a block's condition number.
template <class T> struct Orthonormalise {
  T* blocks;  // [K, D, D]
  std::int64_t width;

  template <class Team> HD void operator()(std::int64_t block, const Team& team) const {
    T* const first = blocks + block * width * width;
    for (std::int64_t r = 0; r < width; ++r) {
      T* const row = first + r * width;
      for (int pass = 0; pass < 2; ++pass) {
        for (std::int64_t p = 0; p < r; ++p) {
          const T* const other = first + p * width;
          const T dot = team.sum(width, [&](std::int64_t k) { return row[k] * other[k]; });
          team.each(width, [&](std::int64_t k) { row[k] -= dot * other[k]; });
        }
      }
      const T square = team.sum(width, [&](std::int64_t k) { return row[k] * row[k]; });
      const T factor = T(1) / math::sqrt(square);
      team.each(width, [&](std::int64_t k) { row[k] *= factor; });
    }
  }
};

struct DivideStep {
  const std::int32_t* step;
  std::int32_t* slow;
  std::int64_t interval;
  HD void operator()(std::int64_t i) const {
    slow[i] = static_cast<std::int32_t>(step[i] / interval);
  }
};

template <class T> struct RowMaximum {
  const T* u;             // [rows, R]
  T* value;               // [rows]
  std::int32_t* feature;  // [rows]
  std::int64_t features;

  template <class Team> HD void operator()(std::int64_t row, const Team& team) const {
    const T* const from = u + row * features;
    const T best = team.max(features, [&](std::int64_t j) { return from[j]; });
    const T last = static_cast<T>(-features);
    const T position = team.max(
        features, [&](std::int64_t j) { return from[j] == best ? static_cast<T>(-j) : last; });
    if (team.leader()) {
      value[row] = best;
      // No entry equals the maximum of a row with NaN: any position does.
      feature[row] = position == last ? 0 : static_cast<std::int32_t>(-position);
    }
  }
};

template <class T> struct AddPickedRow {
  const T* w;                   // [R, D]
  const std::int32_t* feature;  // [rows]
  const T* dvalue;              // [rows]
  T* dx;                        // [rows, D]
  std::int64_t width;

  template <class Team> HD void operator()(std::int64_t row, const Team& team) const {
    const T* const from = w + feature[row] * width;
    T* const to = dx + row * width;
    const T factor = dvalue[row];
    team.each(width, [&](std::int64_t k) { to[k] += factor * from[k]; });
  }
};

}  // namespace

void orthonormalise_on(Backend, Tensor& blocks) {
  dispatch_float(blocks.dtype(), [&]<class T>() {
    rows(blocks.size(0), blocks.size(1) * blocks.size(2),
         Orthonormalise<T>{blocks.data<T>(), blocks.size(2)});
  });
}

void divide_step_on(Backend, const Tensor& step, std::int64_t interval, Tensor& slow) {
  map(1, DivideStep{step.data<std::int32_t>(), slow.data<std::int32_t>(), interval});
}

void row_maxima_on(Backend, const Tensor& u, const FeatureMaxima& maxima) {
  dispatch_float(u.dtype(), [&]<class T>() {
    rows(u.rows(), u.cols(),
         RowMaximum<T>{u.data<T>(), maxima.value.data<T>(), maxima.feature.data<std::int32_t>(),
                       u.cols()});
  });
}

void add_picked_rows_on(Backend, const Tensor& w, const Tensor& feature, const Tensor& dvalue,
                        Tensor& dx) {
  dispatch_float(dx.dtype(), [&]<class T>() {
    rows(dx.rows(), dx.cols(),
         AddPickedRow<T>{w.data<T>(), feature.data<std::int32_t>(), dvalue.data<T>(), dx.data<T>(),
                         dx.cols()});
  });
}

}  // namespace skytape::attention
