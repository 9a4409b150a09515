// Layer norm: one team per row; parameter gradients are column sums.
#include "tensor/norm/layer_norm.hpp"

#include "tensor/launch/columns.hpp"

namespace skytape::tensor {
namespace {

template <class T, class Y> struct LayerNormRow {
  const T* x;       // [rows, E]
  const T* weight;  // [E]
  const T* bias;    // [E]
  Y* y;             // [rows, E]
  T* mean;          // [rows]
  T* inv_std;       // [rows]
  std::int64_t e;   // E
  template <class Team> HD void operator()(std::int64_t row, const Team& team) const {
    const T* const from = x + row * e;
    Y* const to = y + row * e;
    const T* const w = weight;
    const T* const b = bias;
    const T share = T(1) / static_cast<T>(e);
    const T mu = share * team.sum(e, [=](std::int64_t i) { return from[i]; });
    // Two passes: E[x²] - mean² would cancel where the mean is large.
    const T variance = share * team.sum(e, [=](std::int64_t i) {
      const T centred = from[i] - mu;
      return centred * centred;
    });
    const T rstd = T(1) / math::sqrt(variance + static_cast<T>(kLayerNormEpsilon));
    team.each(e,
              [=](std::int64_t i) { to[i] = static_cast<Y>((from[i] - mu) * rstd * w[i] + b[i]); });
    if (team.leader()) {
      mean[row] = mu;
      inv_std[row] = rstd;
    }
  }
};

/// With h = (x - mean) inv_std and g = dy weight: dx = inv_std (g - mean(g) - h mean(g h)).
template <class T> struct LayerNormBackwardRow {
  const T* x;        // [rows, E]
  const T* weight;   // [E]
  const T* mean;     // [rows]
  const T* inv_std;  // [rows]
  const T* dy;       // [rows, E]
  T* dx;             // [rows, E]
  std::int64_t e;    // E
  template <class Team> HD void operator()(std::int64_t row, const Team& team) const {
    const T* const from = x + row * e;
    const T* const g = dy + row * e;
    T* const to = dx + row * e;
    const T* const w = weight;
    const T mu = mean[row], rstd = inv_std[row];
    const T share = T(1) / static_cast<T>(e);
    const T mean_g = share * team.sum(e, [=](std::int64_t i) { return g[i] * w[i]; });
    const T mean_gh =
        share * team.sum(e, [=](std::int64_t i) { return g[i] * w[i] * ((from[i] - mu) * rstd); });
    team.each(e, [=](std::int64_t i) {
      to[i] = rstd * (g[i] * w[i] - mean_g - (from[i] - mu) * rstd * mean_gh);
    });
  }
};

/// Summands of dweight (k = 0), dy h, and dbias (k = 1), dy.
template <class T> struct ParameterEntry {
  const T* x;        // [rows, E]
  const T* mean;     // [rows]
  const T* inv_std;  // [rows]
  const T* dy;       // [rows, E]
  std::int64_t e;    // E
  HD T operator()(int k, std::int64_t, std::int64_t i, std::int64_t j) const {
    const T g = dy[i * e + j];
    return k == 0 ? g * ((x[i * e + j] - mean[i]) * inv_std[i]) : g;
  }
  HD T operator()(int k, std::int64_t o, std::int64_t i) const { return (*this)(k, o, i, 0); }
};

}  // namespace

void layer_norm_on(Backend, const Tensor& x, const Tensor& weight, const Tensor& bias,
                   LayerNormForward& f) {
  dispatch_float(x.dtype(), [&]<class T>() {
    dispatch_written<T>(f.y.dtype(), [&]<class Y>() {
      rows(x.rows(), x.cols(),
           LayerNormRow<T, Y>{x.data<T>(), weight.data<T>(), bias.data<T>(), f.y.data<Y>(),
                              f.mean.data<T>(), f.inv_std.data<T>(), x.cols()});
    });
  });
}

void layer_norm_backward_on(Backend, const Tensor& x, const Tensor& weight, const Tensor& mean,
                            const Tensor& inv_std, const Tensor& dy, Tensor& dx, Tensor& dparams) {
  dispatch_float(x.dtype(), [&]<class T>() {
    rows(x.rows(), x.cols(),
         LayerNormBackwardRow<T>{x.data<T>(), weight.data<T>(), mean.data<T>(), inv_std.data<T>(),
                                 dy.data<T>(), dx.data<T>(), x.cols()});
    columns<2, T>(
        1, x.rows(), x.cols(),
        ParameterEntry<T>{x.data<T>(), mean.data<T>(), inv_std.data<T>(), dy.data<T>(), x.cols()},
        dparams.data<T>());
  });
}

}  // namespace skytape::tensor
