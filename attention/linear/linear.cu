// Linear attention on the GPU: arrays of features, library products, and kernels that take a row at
// a time. linear.cpp derives the gradients.
#include "attention/linear/linear_rows.hpp"
#include "tensor/gemm/gemm.hpp"
#include "tensor/movement/layout.hpp"

namespace skytape::attention {
namespace {

using namespace linear_rows;

template <Activation A, class T> struct MakeFeatures {
  Features<A, T> phi;
  const T *x, *mask;  // [G, N, D], [B, N] or null
  T* f;               // [G, N, R]
  std::int64_t heads, n, features;

  template <class Team> __device__ void operator()(std::int64_t row, const Team& team) const {
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

  template <class Team> __device__ void operator()(std::int64_t row, const Team& team) const {
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

  template <class Team> __device__ void operator()(std::int64_t row, const Team& team) const {
    const T sum = rule.divide(team, s + row * (rule.width + 1), out + row * rule.width);
    if (team.leader()) z[row] = sum;
  }
};

template <class T> struct DivideBackward {
  Normalise<T> rule;
  const T *z, *out, *dout;  // [rows], [rows, D], [rows, D]
  T* ds;                    // [rows, P]

  template <class Team> __device__ void operator()(std::int64_t row, const Team& team) const {
    const std::int64_t at = row * rule.width;
    rule.differentiate(team, z[row], out + at, dout + at, ds + row * (rule.width + 1));
  }
};

/// [V, 1]: [G, N, P].
Tensor with_ones(const Tensor& v) {
  return tensor::concat({v, ones_like(v, v.shape().with(2, 1))}, 2);
}

/// phi of the rows of x [G, N, D], times the mask if it is defined: [G, N, R].
Tensor features(const LinearInputs& in, const Tensor& x, const Tensor& mask) {
  Tensor f = empty_like(x, x.shape().with(2, in.features));
  dispatch(in, [&]<class T, Activation A>() {
    cuda::rows(x.rows(), in.features,
               MakeFeatures<A, T>{features_of<A, T>(in), x.data<T>(), mask.data_or_null<T>(),
                                  f.data<T>(), in.heads, x.size(1), in.features});
  });
  return f;
}

/// dx [G, N, D] from df [G, N, R], mask as above.
void differentiate(const LinearInputs& in, const Tensor& x, const Tensor& mask, const Tensor& df,
                   Tensor& dx) {
  dispatch(in, [&]<class T, Activation A>() {
    cuda::rows(
        x.rows(), in.features,
        DifferentiateFeatures<A, T>{features_of<A, T>(in), x.data<T>(), mask.data_or_null<T>(),
                                    df.data<T>(), dx.data<T>(), in.heads, x.size(1), in.features});
  });
}

}  // namespace

void linear_forward_on(Cuda, const LinearInputs& in, LinearForward& result) {
  const Tensor c = features(in, in.k, in.mask);                            // (1)
  tensor::gemm(with_ones(in.v), Op::transpose, c, Op::none, result.sums);  // (1)
  const Tensor s = tensor::matmul(features(in, in.q, {}), result.sums, Op::none,
                                  Op::transpose);  // (2) [G, N, P]
  dispatch_float(s.dtype(), [&]<class T>() {
    cuda::rows(in.q.rows(), in.q.cols(),
               Divide<T>{normalise_of<T>(in), s.data<T>(), result.z.data<T>(),
                         result.out.data<T>()});  // (2)
  });
}

void linear_backward_on(Cuda, const LinearInputs& in, const LinearForward& saved,
                        const Tensor& dout, LinearBackward& d) {
  Tensor ds = empty_like(dout, dout.shape().with(2, dout.size(2) + 1));  // [G, N, P]
  dispatch_float(ds.dtype(), [&]<class T>() {
    cuda::rows(dout.rows(), dout.cols(),
               DivideBackward<T>{normalise_of<T>(in), saved.z.data<T>(), saved.out.data<T>(),
                                 dout.data<T>(), ds.data<T>()});  // (2)
  });
  const Tensor dsums =
      tensor::matmul(ds, features(in, in.q, {}), Op::transpose, Op::none);         // (2) [G, P, R]
  differentiate(in, in.q, {}, tensor::matmul(ds, saved.sums), d.dq);               // (2), (3)
  differentiate(in, in.k, in.mask, tensor::matmul(with_ones(in.v), dsums), d.dk);  // (1), (3)
  const Tensor of_values = tensor::narrow(dsums, 1, 0, dout.size(2));              // [G, D, R]
  tensor::gemm(features(in, in.k, in.mask), Op::none, of_values, Op::transpose, d.dv);  // (1)
}

}  // namespace skytape::attention
