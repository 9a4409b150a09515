// Row kernels of the kernel products.
#include "attention/feature_maps/gaussian_kernel_plan.hpp"
#include "tensor/launch/launch.hpp"

namespace skytape::attention {
namespace {

template <class T> struct Exponentiate {
  const T* xx;  // [G, N]
  const T* ww;  // [G, L]
  T* c;         // [G, N, L]
  std::int64_t rows, landmarks;

  template <class Team> HD void operator()(std::int64_t row, const Team& team) const {
    T* const to = c + row * landmarks;
    const T* const column = ww + row / rows * landmarks;
    const T own = xx[row];
    team.each(landmarks, [&](std::int64_t j) { to[j] = math::exp(to[j] + own + column[j]); });
  }
};

template <class T> struct HalfSquares {
  const T* x;  // [G, n, D]
  T* xx;       // [G, n]
  std::int64_t width;

  template <class Team> HD void operator()(std::int64_t row, const Team& team) const {
    const T* const from = x + row * width;
    const T square = team.sum(width, [&](std::int64_t j) { return from[j] * from[j]; });
    if (team.leader()) xx[row] = T(-0.5) * square;
  }
};

template <class T> struct WeighRows {
  const T* c;   // [G, N, L]
  const T* dc;  // [G, N, L]
  T* e;         // [G, N, L]
  T* sums;      // [G, N]
  std::int64_t landmarks;

  template <class Team> HD void operator()(std::int64_t row, const Team& team) const {
    const T* const weight = c + row * landmarks;
    const T* const from = dc + row * landmarks;
    T* const to = e + row * landmarks;
    const T total = team.sum(landmarks, [&](std::int64_t j) { return from[j] * weight[j]; });
    team.each(landmarks, [&](std::int64_t j) { to[j] = from[j] * weight[j]; });
    if (team.leader()) sums[row] = total;
  }
};

template <class T> struct SubtractWeighted {
  T* dx;          // [G, n, D]
  const T* x;     // [G, n, D]
  const T* sums;  // [G, n]
  const T* more;  // [G, n], or null
  std::int64_t width;

  template <class Team> HD void operator()(std::int64_t row, const Team& team) const {
    const T weight = more == nullptr ? sums[row] : sums[row] + more[row];
    const T* const from = x + row * width;
    T* const to = dx + row * width;
    team.each(width, [&](std::int64_t j) { to[j] -= weight * from[j]; });
  }
};

}  // namespace

void exponentiate_on(Backend, const KernelInputs& in, Tensor& c) {
  dispatch_float(c.dtype(), [&]<class T>() {
    rows(c.rows(), c.cols(),
         Exponentiate<T>{in.xx.data<T>(), in.ww.data<T>(), c.data<T>(), c.size(1), c.cols()});
  });
}

void half_squares_on(Backend, const Tensor& x, Tensor& xx) {
  dispatch_float(x.dtype(), [&]<class T>() {
    rows(x.rows(), x.cols(), HalfSquares<T>{x.data<T>(), xx.data<T>(), x.cols()});
  });
}

void weigh_rows_on(Backend, const Tensor& c, const Tensor& dc, Tensor& e, Tensor& sums) {
  dispatch_float(c.dtype(), [&]<class T>() {
    rows(c.rows(), c.cols(),
         WeighRows<T>{c.data<T>(), dc.data<T>(), e.data<T>(), sums.data<T>(), c.cols()});
  });
}

void subtract_weighted_on(Backend, Tensor& dx, const Tensor& x, const Tensor& sums,
                          const Tensor& more) {
  dispatch_float(x.dtype(), [&]<class T>() {
    rows(x.rows(), x.cols(),
         SubtractWeighted<T>{dx.data<T>(), x.data<T>(), sums.data<T>(), more.data_or_null<T>(),
                             x.cols()});
  });
}

}  // namespace skytape::attention
