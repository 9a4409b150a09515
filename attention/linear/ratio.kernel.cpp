// Row-normalised ratio with the normaliser as last column.
#include "attention/linear/ratio.hpp"
#include "tensor/launch/launch.hpp"

namespace skytape::attention {
namespace {

template <class T> struct Ratio {
  const T* x;  // [rows, D + 1]
  T* out;      // [rows, D]
  std::int64_t width;

  template <class Team> HD void operator()(std::int64_t row, const Team& team) const {
    const T* const from = x + row * (width + 1);
    T* const to = out + row * width;
    const T inverse = from[width] == T(0) ? T(0) : T(1) / from[width];
    team.each(width, [&](std::int64_t c) { to[c] = from[c] * inverse; });
  }
};

template <class T> struct RatioBackward {
  const T *x, *out, *dout;  // [rows, D + 1], [rows, D], [rows, D]
  T* dx;                    // [rows, D + 1]
  std::int64_t width;

  template <class Team> HD void operator()(std::int64_t row, const Team& team) const {
    const T normaliser = x[row * (width + 1) + width];
    const T inverse = normaliser == T(0) ? T(0) : T(1) / normaliser;
    const T* const result = out + row * width;
    const T* const upstream = dout + row * width;
    T* const to = dx + row * (width + 1);
    const T dot = team.sum(width, [&](std::int64_t c) { return upstream[c] * result[c]; });
    team.each(width, [&](std::int64_t c) { to[c] = upstream[c] * inverse; });
    if (team.leader()) to[width] = -dot * inverse;
  }
};

}  // namespace

void ratio_on(Backend, const Tensor& x, Tensor& out) {
  dispatch_float(x.dtype(), [&]<class T>() {
    rows(out.rows(), out.cols(), Ratio<T>{x.data<T>(), out.data<T>(), out.cols()});
  });
}

void ratio_backward_on(Backend, const Tensor& x, const Tensor& out, const Tensor& dout,
                       Tensor& dx) {
  dispatch_float(x.dtype(), [&]<class T>() {
    rows(out.rows(), out.cols(),
         RatioBackward<T>{x.data<T>(), out.data<T>(), dout.data<T>(), dx.data<T>(), out.cols()});
  });
}

}  // namespace skytape::attention
