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

template <class T> struct WeighRows {
  const T* c;  // [G, N, L]
  T* e;        // [G, N, L]
  T* sums;     // [G, N]
  std::int64_t landmarks;

  template <class Team> HD void operator()(std::int64_t row, const Team& team) const {
    const T* const weight = c + row * landmarks;
    T* const to = e + row * landmarks;
    const T total = team.sum(landmarks, [&](std::int64_t j) { return to[j] * weight[j]; });
    team.each(landmarks, [&](std::int64_t j) { to[j] *= weight[j]; });
    if (team.leader()) sums[row] = total;
  }
};

}  // namespace

void exponentiate_on(Backend, const KernelInputs& in, Tensor& c) {
  dispatch_float(c.dtype(), [&]<class T>() {
    rows(c.rows(), c.cols(),
         Exponentiate<T>{in.xx.data<T>(), in.ww.data<T>(), c.data<T>(), c.size(1), c.cols()});
  });
}

void weigh_rows_on(Backend, const Tensor& c, Tensor& e, Tensor& sums) {
  dispatch_float(c.dtype(), [&]<class T>() {
    rows(c.rows(), c.cols(), WeighRows<T>{c.data<T>(), e.data<T>(), sums.data<T>(), c.cols()});
  });
}

}  // namespace skytape::attention
