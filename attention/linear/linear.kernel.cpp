// Linear attention's features and its normalisation, a row at a time.
#include "attention/linear/linear_rows.hpp"

namespace skytape::attention {
namespace {

using namespace linear_rows;

template <Activation A, class T> struct MakeFeatures {
  Features<A, T> phi;
  const T *x, *mask;  // [G, N, D], [B, N] or null
  T* f;               // [G, N, R]
  std::int64_t heads, n, features;

  template <class Team> HD void operator()(std::int64_t row, const Team& team) const {
    const std::int64_t g = row / n, i = row - g * n;
    const T weight = mask == nullptr ? T(1) : mask[g / heads * n + i];
    phi.make(team, i, x + row * phi.width, weight, f + row * features);
  }
};

template <Activation A, class T> struct DifferentiateFeatures {
  Features<A, T> phi;
  const T *x, *mask, *df;  // [G, N, D], [B, N] or null, [G, N, R]
  T* dx;                   // [G, N, D]
  std::int64_t heads, n, features;

  template <class Team> HD void operator()(std::int64_t row, const Team& team) const {
    const std::int64_t g = row / n, i = row - g * n;
    const T weight = mask == nullptr ? T(1) : mask[g / heads * n + i];
    phi.differentiate(team, i, x + row * phi.width, weight, df + row * features,
                      dx + row * phi.width);
  }
};

template <class T> struct Divide {
  Normalise<T> rule;
  const T* s;  // [rows, P]
  T *z, *out;  // [rows], [rows, D]

  template <class Team> HD void operator()(std::int64_t row, const Team& team) const {
    const T sum = rule.divide(team, s + row * (rule.width + 1), out + row * rule.width);
    if (team.leader()) z[row] = sum;
  }
};

template <class T> struct DivideBackward {
  Normalise<T> rule;
  const T *z, *out, *dout;  // [rows], [rows, D], [rows, D]
  T* ds;                    // [rows, P]

  template <class Team> HD void operator()(std::int64_t row, const Team& team) const {
    const std::int64_t at = row * rule.width;
    rule.differentiate(team, z[row], out + at, dout + at, ds + row * (rule.width + 1));
  }
};

}  // namespace

void features_on(Backend, const LinearInputs& in, const Tensor& x, const Tensor& mask, Tensor& f) {
  dispatch(in, [&]<class T, Activation A>() {
    rows(x.rows(), in.features,
         MakeFeatures<A, T>{features_of<A, T>(in), x.data<T>(), mask.data_or_null<T>(), f.data<T>(),
                            in.heads, x.size(1), in.features});
  });
}

void features_backward_on(Backend, const LinearInputs& in, const Tensor& x, const Tensor& mask,
                          const Tensor& df, Tensor& dx) {
  dispatch(in, [&]<class T, Activation A>() {
    rows(x.rows(), in.features,
         DifferentiateFeatures<A, T>{features_of<A, T>(in), x.data<T>(), mask.data_or_null<T>(),
                                     df.data<T>(), dx.data<T>(), in.heads, x.size(1), in.features});
  });
}

void normalise_on(Backend, const LinearInputs& in, const Tensor& s, Tensor& z, Tensor& out) {
  dispatch_float(s.dtype(), [&]<class T>() {
    rows(out.rows(), out.cols(),
         Divide<T>{normalise_of<T>(in), s.data<T>(), z.data<T>(), out.data<T>()});
  });
}

void normalise_backward_on(Backend, const LinearInputs& in, const Tensor& z, const Tensor& out,
                           const Tensor& dout, Tensor& ds) {
  dispatch_float(z.dtype(), [&]<class T>() {
    rows(out.rows(), out.cols(),
         DivideBackward<T>{normalise_of<T>(in), z.data<T>(), out.data<T>(), dout.data<T>(),
                           ds.data<T>()});
  });
}

}  // namespace skytape::attention
