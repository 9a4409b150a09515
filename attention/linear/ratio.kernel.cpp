// Row-normalised ratio with the normaliser as last column.
#include "attention/linear/ratio.hpp"
#include "tensor/launch/launch.hpp"

namespace skytape::attention {
namespace {

template <class T> struct RatioRow {
  const T* x;           // [rows, D + 1]
  T *out, *normaliser;  // [rows, D], [rows]
  std::int64_t width;

  template <class Team> HD void operator()(std::int64_t row, const Team& team) const {
    const T* const from = x + row * (width + 1);
    T* const to = out + row * width;
    const T inverse = from[width] == T(0) ? T(0) : T(1) / from[width];
    team.each(width, [&](std::int64_t c) { to[c] = from[c] * inverse; });
    if (team.leader()) normaliser[row] = from[width];
  }
};

template <class T> struct RatioBackward {
  const T *normaliser, *out, *dout;  // [rows], [rows, D], [rows, D]
  T* dx;                             // [rows, D + 1]
  std::int64_t width;

  template <class Team> HD void operator()(std::int64_t row, const Team& team) const {
    const T inverse = normaliser[row] == T(0) ? T(0) : T(1) / normaliser[row];
    const T* const result = out + row * width;
    const T* const upstream = dout + row * width;
    T* const to = dx + row * (width + 1);
    const T dot = team.sum(width, [&](std::int64_t c) { return upstream[c] * result[c]; });
    team.each(width, [&](std::int64_t c) { to[c] = upstream[c] * inverse; });
    if (team.leader()) to[width] = -dot * inverse;
  }
};

}  // namespace

void ratio_on(Backend, const Tensor& x, Ratio& r) {
  dispatch_float(x.dtype(), [&]<class T>() {
    rows(r.out.rows(), r.out.cols(),
         RatioRow<T>{x.data<T>(), r.out.data<T>(), r.normaliser.data<T>(), r.out.cols()});
  });
}

void ratio_backward_on(Backend, const Ratio& r, const Tensor& dout, Tensor& dx) {
  dispatch_float(dout.dtype(), [&]<class T>() {
    rows(dout.rows(), dout.cols(),
         RatioBackward<T>{r.normaliser.data<T>(), r.out.data<T>(), dout.data<T>(), dx.data<T>(),
                          dout.cols()});
  });
}

}  // namespace skytape::attention
