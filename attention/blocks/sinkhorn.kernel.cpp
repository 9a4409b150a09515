// The passes over a matrix that Sinkhorn normalisation is made of; columns are rows of the
// transposed matrix.
#include <limits>

#include "attention/blocks/sinkhorn.hpp"
#include "tensor/launch/launch.hpp"

namespace skytape::attention {
namespace {

template <class T> struct PresentScores {
  const T *s, *noise;  // [B, H, Q, Q]; noise may be null
  const T* present;    // [B, Q]
  T* scores;           // [B, H, Q, Q]
  std::int64_t size, heads;
  T inverse_temperature;

  HD void operator()(std::int64_t e) const {
    const std::int64_t j = e % size, i = e / size % size, b = e / (size * size * heads);
    const bool row = present[b * size + i] != T(0), column = present[b * size + j] != T(0);
    const T alone = i == j ? T(0) : -std::numeric_limits<T>::infinity();
    const T value = (s[e] + (noise != nullptr ? noise[e] : T(0))) * inverse_temperature;
    scores[e] = row && column ? value : alone;
  }
};

template <class T> struct LogSums {
  const T* x;      // [G, Q, Q]
  const T* shift;  // [G, Q]
  T* sums;         // [G, Q]
  std::int64_t size;

  template <class Team> HD void operator()(std::int64_t i, const Team& team) const {
    const T* const from = x + i * size;
    const T* const less = shift + i / size * size;
    const T largest = team.max(size, [&](std::int64_t j) { return from[j] - less[j]; });
    const T sum =
        team.sum(size, [&](std::int64_t j) { return math::exp(from[j] - less[j] - largest); });
    if (team.leader()) sums[i] = largest + math::log(sum);
  }
};

template <class T> struct Matrix {
  const T* x;             // [G, Q, Q]
  const T *row, *column;  // [G, Q]
  T* y;                   // [G, Q, Q]
  std::int64_t size;

  HD void operator()(std::int64_t e) const {
    const std::int64_t i = e / size;
    y[e] = math::exp(x[e] - row[i] - column[i / size * size + e % size]);
  }
};

template <class T> struct LogSumsBackward {
  const T* x;                 // [G, Q, Q]
  const T *row, *column, *g;  // [G, Q]
  T* dx;                      // [G, Q, Q]
  T* drow;                    // [G, Q]
  std::int64_t size;

  template <class Team> HD void operator()(std::int64_t i, const Team& team) const {
    const T* const from = x + i * size;
    const T* const less = column + i / size * size;
    const T* const upstream = g + i / size * size;
    T* const to = dx + i * size;
    const T own = row[i];
    const auto part = [&](std::int64_t j) {
      return math::exp(from[j] - own - less[j]) * upstream[j];
    };
    const T total = team.sum(size, part);
    team.each(size, [&](std::int64_t j) { to[j] += part(j); });
    if (team.leader()) drow[i] -= total;
  }
};

}  // namespace

void sinkhorn_scores_on(Backend, const Tensor& s, const Tensor& noise, const Tensor& present,
                        double temperature, Tensor& scores) {
  dispatch_float(s.dtype(), [&]<class T>() {
    map(s.numel(), PresentScores<T>{s.data<T>(), noise.defined() ? noise.data<T>() : nullptr,
                                    present.data<T>(), scores.data<T>(), s.cols(), s.size(1),
                                    static_cast<T>(1 / temperature)});
  });
}

void log_sums_on(Backend, const Tensor& x, const Tensor& shift, Tensor& sums) {
  dispatch_float(x.dtype(), [&]<class T>() {
    rows(x.rows(), x.cols(), LogSums<T>{x.data<T>(), shift.data<T>(), sums.data<T>(), x.cols()});
  });
}

void sinkhorn_matrix_on(Backend, const Tensor& x, const Tensor& row, const Tensor& column,
                        Tensor& y) {
  dispatch_float(x.dtype(), [&]<class T>() {
    map(x.numel(), Matrix<T>{x.data<T>(), row.data<T>(), column.data<T>(), y.data<T>(), x.cols()});
  });
}

void log_sums_backward_on(Backend, const Tensor& x, const Tensor& row, const Tensor& column,
                          const Tensor& g, Tensor& dx, Tensor& drow) {
  dispatch_float(x.dtype(), [&]<class T>() {
    rows(x.rows(), x.cols(),
         LogSumsBackward<T>{x.data<T>(), row.data<T>(), column.data<T>(), g.data<T>(), dx.data<T>(),
                            drow.data<T>(), x.cols()});
  });
}

}  // namespace skytape::attention
